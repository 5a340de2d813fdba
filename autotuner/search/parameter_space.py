"""Layouts as the parameters of a black-box sampler: ordered sizes as integers on a log2 scale, the rest as categories.

A size axis with a value that is no power of two is written as positions in its ascending list, which keeps the order.
`dp` is no parameter: it follows from the others and the number of devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from autotuner.domain.parallel import ParallelConfig
from autotuner.search.columns import Columns, IntArray, columns_of

_SIZES: Final = ("tp", "pp", "cp", "ep", "virtual_stages", "micro_batch_size")
_CATEGORIES: Final = ("sequence_parallel", "zero_stage", "recompute")


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One axis that varies. `values` are its column values, ascending; `codes` what a sampler sees of each."""

    name: str
    field: str
    values: tuple[int, ...]
    codes: tuple[int, ...]
    ordered: bool


@dataclass(frozen=True, kw_only=True)
class ParameterSpace:
    """The axes that vary among some layouts."""

    parameters: tuple[Parameter, ...]

    @classmethod
    def of(cls, candidates: Columns, *, others: Sequence[ParallelConfig]) -> ParameterSpace:
        """The smallest space that holds all candidates and the other layouts."""
        more = columns_of(others)
        found = []
        for field in (*_SIZES, *_CATEGORIES):
            both = np.concatenate([getattr(candidates, field), getattr(more, field)])
            values = tuple(int(value) for value in np.unique(both))
            if len(values) > 1:
                found.append(_parameter(field, values))
        return cls(parameters=tuple(found))

    def params_of(self, config: ParallelConfig) -> dict[str, int]:
        """What a sampler sees of a layout that lies in the space. Raises ValueError for one outside."""
        row = columns_of([config])
        return {p.name: p.codes[p.values.index(int(getattr(row, p.field)[0]))] for p in self.parameters}

    def addresses(self, columns: Columns) -> IntArray:
        """One number for each layout, equal for equal parameters (shape: [layouts])."""
        address = np.zeros(len(columns), dtype=np.int64)
        for p in self.parameters:
            address = address * len(p.values) + np.searchsorted(p.values, getattr(columns, p.field))
        return address

    def address_of(self, params: Mapping[str, Any]) -> int | None:
        """The same number for a sampler's parameters; None for a value between those of the list."""
        address = 0
        for p in self.parameters:
            if params[p.name] not in p.codes:
                return None
            address = address * len(p.values) + p.codes.index(params[p.name])
        return address


def _parameter(field: str, values: tuple[int, ...]) -> Parameter:
    if field in _CATEGORIES:
        return Parameter(name=field, field=field, values=values, codes=values, ordered=False)
    if all(value & (value - 1) == 0 for value in values):
        exponents = tuple(value.bit_length() - 1 for value in values)
        return Parameter(name=f"log2_{field}", field=field, values=values, codes=exponents, ordered=True)
    positions = tuple(range(len(values)))
    return Parameter(name=f"{field}_position", field=field, values=values, codes=positions, ordered=True)
