"""Presets: models, devices and clusters that a job can name instead of describing them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from fastapi import APIRouter

from api.openapi import problems
from api.schemas import PresetItem, PresetList, PresetSpec
from autotuner.presets.loader import cluster_preset, device_preset, model_preset, preset_names, preset_source

router = APIRouter(prefix="/presets", tags=["presets"])

Kind: TypeAlias = Literal["models", "devices", "clusters"]

_READERS: dict[Kind, Callable[[str], PresetSpec]] = {
    "models": model_preset,
    "devices": device_preset,
    "clusters": cluster_preset,
}


@router.get("/{kind}", operation_id="list_presets", summary="Presets of one kind", responses=problems(422))
def list_presets(kind: Kind) -> PresetList:
    """By name, each with the values it stands for. The cluster `local`, this machine itself, is not in the list."""
    read = _READERS[kind]
    items = [PresetItem(name=n, source=preset_source(kind, name=n), spec=read(n)) for n in preset_names(kind)]
    return PresetList(items=items)
