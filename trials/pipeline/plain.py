"""No pipeline: forward and backward of one micro-batch after the other."""

from __future__ import annotations

from trials.pipeline.p2p import StageLinks
from trials.pipeline.stage import StageRunner


def run_plain(stage: StageRunner, links: StageLinks) -> None:
    """Run all micro-batches of a model that is on one stage."""
    for _ in range(stage.num_microbatches):
        stage.forward(links.receive_forward())
        stage.backward(links.receive_backward())
    links.finish()
