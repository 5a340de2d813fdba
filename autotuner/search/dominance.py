"""Layouts that can only lose: they pay time for memory that another layout, equal otherwise, does not need.

Decides that for recompute alone, where it is certain: recomputing adds work and changes nothing but memory.  A user who
lists recompute values gets them all; the rule is for a derived axis.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from autotuner.domain.parallel import ParallelConfig
from autotuner.domain.rejection import Rejection
from autotuner.search.columns import RECOMPUTES, BoolArray, Columns, FloatArray, IntArray, flags

# Sure enough that a wrong memory estimate (its deviation is in the probability) would have to be wrong by far more.
SURELY_FITS: Final = 0.999


def needless_recompute(columns: Columns, *, probability_fits: FloatArray) -> BoolArray:
    """Flags of layouts whose twin with less recompute surely fits (shape of all arrays: [layouts])."""
    twins = _twin_groups(columns)
    # The least recompute code of each group that surely fits; a code beyond all where none does.
    least = np.full(int(twins.max()) + 1 if len(twins) else 0, len(RECOMPUTES), dtype=np.int64)
    sure = probability_fits >= SURELY_FITS
    np.minimum.at(least, twins[sure], columns.recompute[sure])
    return flags(columns.recompute > least[twins])


def recompute_rejection(config: ParallelConfig, *, probability_fits: float) -> Rejection:
    """The rejection of one such layout."""
    return Rejection(
        rule="recompute_not_needed",
        message=f"{config.key()} recomputes activations and surely fits with less of it",
        values={"recompute": config.recompute, "probability_fits": round(probability_fits, 6)},
        fix=f"list recompute {config.recompute} in the space to have it tried all the same",
        config_key=config.key(),
    )


def _twin_groups(columns: Columns) -> IntArray:
    """A number for each layout that is shared by layouts equal in all but recompute (shape: [layouts])."""
    group = np.zeros(len(columns), dtype=np.int64)
    for values in (
        *(columns.tp, columns.pp, columns.dp, columns.cp, columns.ep, columns.virtual_stages),
        *(columns.micro_batch_size, columns.sequence_parallel, columns.zero_stage),
    ):
        distinct, codes = np.unique(values, return_inverse=True)
        # Renumbered after each axis, so the product of all axes never has to fit an integer.
        _, group = np.unique(group * len(distinct) + codes, return_inverse=True)
    return np.asarray(group, dtype=np.int64)
