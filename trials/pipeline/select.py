"""Which schedule a layout runs."""

from __future__ import annotations

from collections.abc import Sequence

from trials.mesh import ParallelMesh
from trials.pipeline.interleaved import run_interleaved
from trials.pipeline.one_f_one_b import run_one_f_one_b
from trials.pipeline.p2p import Channel, RingLinks, StageLinks
from trials.pipeline.plain import run_plain
from trials.pipeline.stage import StageRunner


def run_schedule(chunks: Sequence[StageRunner], channel: Channel, *, mesh: ParallelMesh) -> None:
    """Forward and backward of all micro-batches; gradients are accumulated, losses are summed in `chunks`.

    `chunks` are this rank's part of the model, one for each of its virtual stages.
    """
    num_stages, stage = mesh.grid.pp, mesh.at.pp_rank
    if len(chunks) > 1:
        run_interleaved(chunks, RingLinks(channel, mesh=mesh), num_stages=num_stages, stage=stage)
    elif num_stages == 1:
        run_plain(chunks[0], StageLinks(channel, mesh=mesh))
    else:
        run_one_f_one_b(chunks[0], StageLinks(channel, mesh=mesh), stages_behind=num_stages - 1 - stage)
