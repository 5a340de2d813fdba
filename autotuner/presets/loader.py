"""Reads presets: one TOML file each, units in the key names, a `source` in every file.

Decides how those units become the domain's (bytes, seconds, FLOP/s) and what an unknown name is answered with.  Which
values a preset has is the data files' business; whether they are possible is checked by the domain types.
"""

from __future__ import annotations

import difflib
import tomllib
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Literal

from autotuner.domain.base import DERIVE, Derived
from autotuner.domain.cluster import ClusterSpec, DeviceSpec
from autotuner.domain.errors import UnknownPreset
from autotuner.domain.model import ModelSpec
from autotuner.domain.units import GIB

PresetKind = Literal["models", "devices", "clusters"]
LOCAL_CLUSTER = "local"

_NEAREST = 3
_CUTOFF = 0.3

# Keys of a file whose unit is not the domain's: their name there, and the factor.
_UNITS: dict[str, tuple[str, float]] = {
    "memory_bandwidth_gb_per_second": ("memory_bandwidth_bytes_per_second", 1e9),
    "bandwidth_gb_per_second": ("bandwidth_bytes_per_second", 1e9),
    "latency_microseconds": ("latency_seconds", 1e-6),
    "launch_microseconds": ("launch_seconds", 1e-6),
    "context_gib": ("context_bytes", float(GIB)),
}


def preset_names(kind: PresetKind) -> tuple[str, ...]:
    """The names of one kind, sorted.

    The cluster `local` is not among them: it is not a file but the machine the service runs on (`local.py`).
    """
    return tuple(sorted(entry.name.removesuffix(".toml") for entry in _folder(kind).iterdir() if _is_preset(entry)))


def model_preset(name: str) -> ModelSpec:
    """A model by name. Raises UnknownPreset."""
    return ModelSpec.model_validate({**_table("models", name=name)["model"], "name": name})


def device_preset(name: str) -> DeviceSpec:
    """A device by name. Raises UnknownPreset."""
    values = dict(_table("devices", name=name)["device"])
    memory_gib = values.pop("memory_gib")
    peaks = values.pop("peak_teraflops_per_second", {})
    return DeviceSpec.model_validate(
        {
            **_in_domain_units(values),
            "name": name,
            "memory_bytes": int(memory_gib * GIB),
            "peak_flops": {precision: peak * 1e12 for precision, peak in peaks.items()},
        }
    )


def cluster_preset(
    name: str, *, nodes: int | Derived = DERIVE, devices_per_node: int | Derived = DERIVE
) -> ClusterSpec:
    """A cluster by name, resized where a size is given. Raises UnknownPreset."""
    values = dict(_table("clusters", name=name)["cluster"])
    links = {key: _in_domain_units(values[key]) for key in ("intra_node", "inter_node")}
    return ClusterSpec.model_validate(
        {
            "name": name,
            "nodes": values["nodes"] if nodes == DERIVE else nodes,
            "devices_per_node": values["devices_per_node"] if devices_per_node == DERIVE else devices_per_node,
            "device": device_preset(values["device"]),
            "constants": _in_domain_units(values.get("constants", {})),
            **links,
        }
    )


def preset_source(kind: PresetKind, *, name: str) -> str:
    """Where a preset's values come from. Raises UnknownPreset."""
    source: str = _table(kind, name=name)["source"]
    return source


def _in_domain_units(values: dict[str, Any]) -> dict[str, Any]:
    converted: dict[str, Any] = {}
    for key, value in values.items():
        domain_name, factor = _UNITS.get(key, (key, None))
        converted[domain_name] = value if factor is None else value * factor
    return converted


@cache
def _table(kind: PresetKind, *, name: str) -> dict[str, Any]:
    known = preset_names(kind)
    # A name is compared with those that exist and never made into a path by itself.
    if name not in known:
        raise UnknownPreset(_unknown(kind, name=name, known=known), field=f"{kind.removesuffix('s')}.preset")
    return tomllib.loads(_folder(kind).joinpath(f"{name}.toml").read_text(encoding="utf-8"))


def _unknown(kind: PresetKind, *, name: str, known: tuple[str, ...]) -> str:
    choices = (LOCAL_CLUSTER, *known) if kind == "clusters" else known
    nearest = difflib.get_close_matches(name.lower(), choices, n=_NEAREST, cutoff=_CUTOFF)
    shown = name if len(name) <= 80 else f"{name[:80]}..."
    hint = f"the nearest are {', '.join(nearest)}" if nearest else f"known are {', '.join(choices)}"
    return f"there is no preset {shown!r} among the {kind}; {hint}"


def _folder(kind: PresetKind) -> Traversable:
    return files("autotuner.presets").joinpath(kind)


def _is_preset(entry: Traversable) -> bool:
    return entry.is_file() and entry.name.endswith(".toml")
