"""How many layers each pipeline stage holds, for many layouts at once.

The rule itself is `trials/stages.py`'s, shared with the trainer.  Here it is reduced to three stages per layout: the
first, the second and the last.  The rule gives left-over layers to the second chunk first, so no middle stage holds
more than the second, and none keeps more micro-batches in flight: these three carry every maximum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotuner.costmodel.candidates import CandidateArrays, Ints
from autotuner.domain.errors import InvalidInput
from trials.stages import stage_sizes

FIRST, SECOND, LAST = range(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageColumns:
    """Stages of n layouts, every field [n, stages]: position in the pipeline, layers, and which ends it holds."""

    index: Ints
    layers: Ints
    is_first: NDArray[np.bool_]
    is_last: NDArray[np.bool_]


def representative_stages(candidates: CandidateArrays, *, num_layers: int) -> StageColumns:
    """First, second and last stage of each layout, [n, 3]; in a short pipeline they repeat.

    Raises InvalidInput when a layout has more chunks than the model has layers.
    """
    pp = candidates.pp
    index = np.stack([np.zeros_like(pp), np.minimum(1, pp - 1), pp - 1], axis=1)
    layers = np.empty_like(index)
    # A space has tens of thousands of layouts but only a few dozen ways to cut the layers.
    pairs, inverse = np.unique(pp * 65_536 + candidates.virtual_stages, return_inverse=True)
    table = np.empty((len(pairs), 3), dtype=np.int64)
    for row, pair in enumerate(pairs.tolist()):
        sizes = _sizes(num_layers, pp=pair // 65_536, virtual_stages=pair % 65_536)
        table[row] = sizes[0], sizes[min(1, len(sizes) - 1)], sizes[-1]
    layers[:] = table[inverse]
    return StageColumns(index=index, layers=layers, is_first=index == 0, is_last=index == (pp - 1)[:, np.newaxis])


def all_stages(*, pp: int, virtual_stages: int, num_layers: int) -> StageColumns:
    """Every stage of one layout, [1, pp]. Raises InvalidInput as above."""
    index = np.arange(pp, dtype=np.int64)[np.newaxis, :]
    sizes = np.array([_sizes(num_layers, pp=pp, virtual_stages=virtual_stages)], dtype=np.int64)
    return StageColumns(index=index, layers=sizes, is_first=index == 0, is_last=index == pp - 1)


def _sizes(num_layers: int, *, pp: int, virtual_stages: int) -> list[int]:
    try:
        return stage_sizes(num_layers, pp=pp, virtual_stages=virtual_stages)
    except ValueError as error:
        raise InvalidInput(
            f"{error}; use pp x virtual_stages of at most {num_layers}, not {pp} x {virtual_stages}", field="pp"
        ) from None
