"""1F1B (Narayanan et al. 2021, section 2.2): stage i of p has at most p - i micro-batches in flight."""

from __future__ import annotations

from trials.pipeline.p2p import StageLinks
from trials.pipeline.stage import StageRunner


def run_one_f_one_b(stage: StageRunner, links: StageLinks, *, stages_behind: int) -> None:
    """Run all micro-batches; `stages_behind` is the number of stages after this one."""
    num_warmup = min(stages_behind, stage.num_microbatches)
    num_steady = stage.num_microbatches - num_warmup

    # Warm-up: fill the pipeline behind this stage.
    for _ in range(num_warmup):
        links.send_forward(stage.forward(links.receive_forward()))

    # Steady: one forward, one backward; what goes one way travels with what comes the other way.
    received = links.receive_forward() if num_steady else None
    for index in range(num_steady):
        gradient = links.send_forward_receive_backward(stage.forward(received))
        input_gradient = stage.backward(gradient)
        if index < num_steady - 1:
            received = links.send_backward_receive_forward(input_gradient)
        else:
            links.send_backward(input_gradient)

    # Cool-down: backward of what the warm-up left in flight.
    for _ in range(num_warmup):
        links.send_backward(stage.backward(links.receive_backward()))

    links.finish()
