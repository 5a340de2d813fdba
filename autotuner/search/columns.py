"""Many layouts at once, one numpy array for each field, so that a rule is written once for one layout and a million.

Nothing is decided here: rows may hold combinations that no `ParallelConfig` accepts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter

from autotuner.domain.parallel import ParallelConfig, Recompute

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]

RECOMPUTES: Final[tuple[Recompute, ...]] = ("none", "selective", "full")
"""In order of what they cost in time; the position is the code used in columns and features."""


def flags(condition: Any) -> BoolArray:
    """A comparison of arrays as flags; numpy's types lose what such a comparison gives."""
    return np.asarray(condition, dtype=np.bool_)


_CONFIGS: Final = TypeAdapter(list[ParallelConfig])


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Arrays of equal length (shape: [layouts]); `recompute` holds positions in RECOMPUTES."""

    tp: IntArray
    pp: IntArray
    dp: IntArray
    cp: IntArray
    ep: IntArray
    virtual_stages: IntArray
    micro_batch_size: IntArray
    sequence_parallel: IntArray
    zero_stage: IntArray
    recompute: IntArray

    def __len__(self) -> int:
        return len(self.tp)

    def take(self, chosen: BoolArray) -> Columns:
        """The rows where `chosen` holds, in the same order."""
        return Columns(**{f.name: getattr(self, f.name)[chosen] for f in fields(self)})

    def row(self, index: int) -> ParallelConfig:
        """One row, unchecked: an explanation needs the numbers of a layout that validation would refuse."""
        return ParallelConfig.model_construct(**self._as_fields(index, index + 1)[0])

    def to_configs(self) -> list[ParallelConfig]:
        """All rows as validated values. Raises pydantic.ValidationError if a row cannot be a layout."""
        # One call for the whole list: a third faster than a constructor call for each of 130,000 rows.
        return _CONFIGS.validate_python(self._as_fields(0, len(self)))

    def _as_fields(self, start: int, stop: int) -> list[dict[str, Any]]:
        names = [f.name for f in fields(self)]
        lists = [getattr(self, name)[start:stop].tolist() for name in names]
        rows = [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)]
        for row in rows:
            row["sequence_parallel"] = bool(row["sequence_parallel"])
            row["recompute"] = RECOMPUTES[row["recompute"]]
        return rows


def columns_of(configs: Sequence[ParallelConfig]) -> Columns:
    """The columns of existing layouts, in their order."""
    names = [f.name for f in fields(Columns) if f.name != "recompute"]
    arrays = {name: np.array([getattr(c, name) for c in configs], dtype=np.int64) for name in names}
    codes = np.array([RECOMPUTES.index(c.recompute) for c in configs], dtype=np.int64)
    return Columns(**arrays, recompute=codes)
