"""Which schedule a layout runs."""

from __future__ import annotations

from trials.mesh import ParallelMesh
from trials.pipeline.one_f_one_b import run_one_f_one_b
from trials.pipeline.p2p import StageLinks
from trials.pipeline.plain import run_plain
from trials.pipeline.stage import StageRunner


def run_schedule(stage: StageRunner, links: StageLinks, *, mesh: ParallelMesh) -> None:
    """Forward and backward of all micro-batches; gradients are accumulated, the loss is summed in `stage`."""
    if mesh.grid.pp == 1:
        run_plain(stage, links)
    else:
        run_one_f_one_b(stage, links, stages_behind=mesh.grid.pp - 1 - mesh.at.pp_rank)
