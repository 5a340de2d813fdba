"""Every legal layout of a search space, in a stable order, with a count of what was refused by which rule.

Decides nothing about legality (`feasibility.py`) or merit (`ranking.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from autotuner.domain.capabilities import Capabilities
from autotuner.domain.errors import InvalidInput, NoFeasibleLayout
from autotuner.domain.job import TuningJob
from autotuner.domain.parallel import ParallelConfig
from autotuner.domain.rejection import Rejection
from autotuner.search.axes import Axes, axes_of
from autotuner.search.columns import RECOMPUTES, Columns
from autotuner.search.feasibility import RULES, reject
from autotuner.search.rules import Setting

MAX_COMBINATIONS: Final = 5_000_000
# Rows judged at once: bounds the memory of a large space to some tens of megabytes.
_CHUNK_ROWS: Final = 262_144


@dataclass(frozen=True, kw_only=True)
class Enumeration:
    """`candidates` are legal by size; `rejections` counts the rest by rule, `examples` holds one of each rule.

    Candidates and rejections together are all combinations of the axes.
    """

    candidates: tuple[ParallelConfig, ...]
    rejections: dict[str, int]
    examples: tuple[Rejection, ...]


def enumerate_layouts(job: TuningJob, *, capabilities: Capabilities) -> Enumeration:
    """All layouts of the job's space. Raises InvalidInput when it spans more than MAX_COMBINATIONS."""
    axes = axes_of(job, capabilities=capabilities)
    total = axes.num_combinations()
    if total > MAX_COMBINATIONS:
        raise InvalidInput(
            f"the search space spans {total} combinations, more than {MAX_COMBINATIONS}; list fewer values"
            f" ({_longest_axes(axes)})",
            field="space",
        )
    setting = Setting(job=job, capabilities=capabilities)
    candidates: list[ParallelConfig] = []
    counts: dict[str, int] = {}
    examples: dict[str, Rejection] = {}
    for rows in _all_rows(axes, world_size=job.cluster.world_size):
        candidates += _sift(rows, setting=setting, counts=counts, examples=examples).to_configs()
    ordered = [rule.name for rule in RULES if rule.name in counts]
    return Enumeration(
        candidates=tuple(candidates),
        rejections={name: counts[name] for name in ordered},
        examples=tuple(examples[name] for name in ordered),
    )


def require_feasible(enumeration: Enumeration, job: TuningJob) -> None:
    """Raises NoFeasibleLayout with histogram, examples and the nearest legal values when no candidate is left."""
    if enumeration.candidates:
        return
    counts = enumeration.rejections
    refused = ", ".join(f"{name} {count}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))
    ways_out = "; ".join(
        f"{example.message}: {example.fix}"
        for example in sorted(enumeration.examples, key=lambda e: -counts.get(e.rule, 0))
    )
    raise NoFeasibleLayout(
        f"no layout of {job.model.name} fits {job.cluster.world_size} devices: all {sum(counts.values())} combinations"
        f" are rejected ({refused}). {ways_out}",
        histogram=counts,
        examples=enumeration.examples,
    )


def _sift(rows: Columns, *, setting: Setting, counts: dict[str, int], examples: dict[str, Rejection]) -> Columns:
    """The rows that break no rule. Each rule sees only what the ones before it left, which is also what is fast."""
    for rule in RULES:
        violated = rule.violated(rows, setting)
        count = int(np.count_nonzero(violated))
        if count == 0:
            continue
        counts[rule.name] = counts.get(rule.name, 0) + count
        if rule.name not in examples:
            examples[rule.name] = reject(rows.row(int(np.argmax(violated))), rule=rule, setting=setting)
        rows = rows.take(~violated)
    return rows


def _all_rows(axes: Axes, *, world_size: int) -> Iterator[Columns]:
    """The product of the axes in chunks; the last axis runs fastest."""
    values = {
        "tp": np.array(axes.tp),
        "pp": np.array(axes.pp),
        "cp": np.array(axes.cp),
        "ep": np.array(axes.ep),
        "dp": np.array(axes.dp or (0,)),
        "micro_batch_size": np.array(axes.micro_batch_size),
        "virtual_stages": np.array(axes.virtual_stages),
        "sequence_parallel": np.array(axes.sequence_parallel, dtype=np.int64),
        "zero_stage": np.array(axes.zero_stage),
        "recompute": np.array([RECOMPUTES.index(r) for r in axes.recompute]),
    }
    shape = tuple(len(array) for array in values.values())
    total = math.prod(shape)
    for start in range(0, total, _CHUNK_ROWS):
        indices = np.unravel_index(np.arange(start, min(start + _CHUNK_ROWS, total)), shape)
        chosen = {name: values[name][index] for name, index in zip(values, indices, strict=True)}
        if not axes.dp:
            # Where the devices do not divide, the floor makes a product that the world_size rule refuses.
            chosen["dp"] = np.maximum(1, world_size // (chosen["tp"] * chosen["pp"] * chosen["cp"]))
        yield Columns(**{name: array.astype(np.int64) for name, array in chosen.items()})


def _longest_axes(axes: Axes) -> str:
    sizes = {f.name: len(getattr(axes, f.name)) for f in fields(axes)}
    longest = sorted(sizes.items(), key=lambda item: -item[1])[:3]
    return ", ".join(f"{name} has {size}" for name, size in longest)
