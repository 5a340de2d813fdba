"""Layouts as points in which a doubling counts as one, for models that learn from few measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotuner.domain.parallel import ParallelConfig
from autotuner.search.columns import BoolArray, Columns, FloatArray, columns_of


@dataclass(frozen=True, kw_only=True)
class Features:
    """`candidates` has a row for each candidate (shape: [candidates, features]); axes that never vary are left out."""

    candidates: FloatArray
    varying: BoolArray

    @classmethod
    def build(cls, candidates: Columns, *, others: Sequence[ParallelConfig]) -> Features:
        """Features of the candidates; `others` are layouts outside the list that vary an axis as well."""
        all_rows = features_of(candidates)
        everything = np.vstack([all_rows, features_of(columns_of(others))])
        varying = np.ptp(everything, axis=0) > 0
        if not varying.any():
            varying[0] = True  # a single layout still needs one feature to be a point at all
        return cls(candidates=all_rows[:, varying], varying=varying)

    def of(self, configs: Sequence[ParallelConfig]) -> FloatArray:
        """The same features of any layouts (shape: [configs, features])."""
        return features_of(columns_of(configs))[:, self.varying]


def features_of(columns: Columns) -> FloatArray:
    """All features of each layout (shape: [layouts, 10]): log2 of sizes, codes of switches in order of their cost."""
    c = columns
    sizes = (c.tp, c.pp, c.dp, c.micro_batch_size, c.virtual_stages, c.cp, c.ep)
    parts = [np.log2(size) for size in sizes]
    parts += [code.astype(np.float64) for code in (c.recompute, c.zero_stage, c.sequence_parallel)]
    return np.stack(parts, axis=1)
