"""Layouts as columns: one array per axis, so that a whole space is evaluated in one pass.

Decides the order of the recompute codes and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotuner.domain.parallel import ParallelConfig, Recompute

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

RECOMPUTE_CODES: tuple[Recompute, ...] = ("none", "selective", "full")
NO_RECOMPUTE, SELECTIVE_RECOMPUTE, FULL_RECOMPUTE = range(3)

_CODE = {name: code for code, name in enumerate(RECOMPUTE_CODES)}
_INTEGER_AXES = ("tp", "pp", "dp", "cp", "ep", "virtual_stages", "micro_batch_size", "zero_stage")
_SWITCHES = ("sequence_parallel", "overlap_grad_reduce", "overlap_param_gather")


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateArrays:
    """n layouts, every field of shape [n]; names as in `ParallelConfig`, `recompute` as an index of RECOMPUTE_CODES."""

    tp: Ints
    pp: Ints
    dp: Ints
    cp: Ints
    ep: Ints
    virtual_stages: Ints
    micro_batch_size: Ints
    zero_stage: Ints
    recompute: Ints
    sequence_parallel: Bools
    overlap_grad_reduce: Bools
    overlap_param_gather: Bools

    @classmethod
    def of(cls, configs: Sequence[ParallelConfig]) -> CandidateArrays:
        """The columns of `configs`, in their order."""
        integers = np.array(list(map(attrgetter(*_INTEGER_AXES), configs)), dtype=np.int64).reshape(-1, 8)
        switches = np.array(list(map(attrgetter(*_SWITCHES), configs)), dtype=np.bool_).reshape(-1, 3)
        codes = np.array([_CODE[config.recompute] for config in configs], dtype=np.int64)
        columns: dict[str, Any] = {name: integers[:, i].copy() for i, name in enumerate(_INTEGER_AXES)}
        columns |= {name: switches[:, i].copy() for i, name in enumerate(_SWITCHES)}
        return cls(**columns, recompute=codes)

    def __len__(self) -> int:
        return len(self.tp)

    def take(self, indices: Ints) -> CandidateArrays:
        """The layouts at these positions, repeats allowed."""
        return CandidateArrays(**{field.name: getattr(self, field.name)[indices] for field in fields(self)})

    def config(self, index: int) -> ParallelConfig:
        """One layout back as a value."""
        values: dict[str, Any] = {name: int(getattr(self, name)[index]) for name in _INTEGER_AXES}
        values |= {name: bool(getattr(self, name)[index]) for name in _SWITCHES}
        return ParallelConfig(**values, recompute=RECOMPUTE_CODES[int(self.recompute[index])])

    @property
    def world_size(self) -> Ints:
        """Ranks in all, [n]."""
        return self.tp * self.pp * self.dp * self.cp
