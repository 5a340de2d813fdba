"""What each pipeline stage does for one micro-batch: its layers, and the embedding or the head at the ends.

Decides how layer times add up to stage times; the pipeline made of the stages is `pipeline.py`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotuner.costmodel.candidates import FULL_RECOMPUTE, SELECTIVE_RECOMPUTE, CandidateArrays
from autotuner.costmodel.compute import (
    LayerSeconds,
    accumulation_seconds,
    embedding_seconds,
    head_seconds,
    layer_seconds,
)
from autotuner.costmodel.layercomm import layer_traffic
from autotuner.costmodel.params import RankParameters, rank_parameters
from autotuner.costmodel.rates import Rates
from autotuner.costmodel.software import Software
from autotuner.costmodel.split import FIRST, LAST, StageColumns
from autotuner.costmodel.topology import Topology
from autotuner.domain.model import ModelSpec

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSeconds:
    """Seconds of one micro-batch on the first, second and last stage [n, 3], and `all_stages`, the sum over all [n].

    `traffic` is exposed communication inside layers.  `layer` [n] and `fullest` (the parameters of the fullest rank,
    [n]) are what gradient traffic is computed from.
    """

    compute: Floats
    recompute: Floats
    traffic: Floats
    all_stages: Floats
    layer: LayerSeconds
    fullest: RankParameters

    @property
    def total(self) -> Floats:
        """All work of one micro-batch, [n, 3]."""
        total: Floats = self.compute + self.recompute + self.traffic
        return total

    def of_slowest(self, values: Floats) -> Floats:
        """The slowest stage's column of `values` [n, 3], as [n]."""
        slowest = np.argmax(self.total, axis=1)[:, np.newaxis]
        column: Floats = np.take_along_axis(values, slowest, axis=1)[:, 0]
        return column


def stage_seconds(
    model: ModelSpec,
    candidates: CandidateArrays,
    stages: StageColumns,
    *,
    seq_len: int,
    rates: Rates,
    topology: Topology,
    software: Software,
    spare: Floats,
) -> StageSeconds:
    """The three stages that carry every maximum, and the sum of all; `spare` as in `rates.spare_slots`."""
    layer = layer_seconds(model, candidates, seq_len=seq_len, rates=rates, software=software)
    traffic = layer_traffic(
        model,
        candidates,
        seq_len=seq_len,
        element_bytes=rates.element_bytes,
        topology=topology,
        seconds=layer,
        software=software,
        spare=spare,
    )
    again = np.where(candidates.recompute == FULL_RECOMPUTE, layer.forward, 0.0)
    again = np.where(candidates.recompute == SELECTIVE_RECOMPUTE, layer.attention, again)
    held = rank_parameters(
        model,
        layers=stages.layers,
        is_first=stages.is_first,
        is_last=stages.is_last,
        tp=_column(candidates.tp),
        ep=_column(candidates.ep),
    )
    embedding = embedding_seconds(model, candidates, seq_len=seq_len, rates=rates)
    head = head_seconds(model, candidates, seq_len=seq_len, rates=rates)
    layers, once = stages.layers.astype(np.float64), layer.forward + layer.backward
    compute = layers * _column(once) + accumulation_seconds(held.total, rates=rates)
    compute = compute + _at_ends(stages, first=embedding, last=head)
    exposed = layers * _column(traffic.layer) + _at_ends(stages, first=traffic.embedding, last=traffic.head)
    repeated = layers * _column(again)
    return StageSeconds(
        compute=compute,
        recompute=repeated,
        traffic=exposed,
        all_stages=_sum(
            model,
            candidates,
            stages,
            represented=compute + repeated + exposed,
            per_layer=once + again + traffic.layer,
            rates=rates,
        ),
        layer=layer,
        fullest=RankParameters(dense=held.dense.max(axis=1), expert=held.expert.max(axis=1)),
    )


def _sum(
    model: ModelSpec,
    candidates: CandidateArrays,
    stages: StageColumns,
    *,
    represented: Floats,
    per_layer: Floats,
    rates: Rates,
) -> Floats:
    """Both ends as they are (once where they are one stage), and all layers between them, [n]."""
    has_end = candidates.pp > 1
    ends = represented[:, FIRST] + np.where(has_end, represented[:, LAST], 0.0)
    between = model.num_layers - stages.layers[:, FIRST] - np.where(has_end, stages.layers[:, LAST], 0)
    held = rank_parameters(model, layers=between, is_first=False, is_last=False, tp=candidates.tp, ep=candidates.ep)
    total: Floats = ends + between * per_layer + accumulation_seconds(held.total, rates=rates)
    return total


def _at_ends(stages: StageColumns, *, first: Floats, last: Floats) -> Floats:
    both: Floats = stages.is_first * _column(first) + stages.is_last * _column(last)
    return both


def _column(values: Any) -> Any:
    return values[:, np.newaxis]
