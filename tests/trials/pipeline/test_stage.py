"""What a chunk keeps of a micro-batch in flight."""

from __future__ import annotations

import weakref

import torch
from torch import Tensor, nn

from trials.pipeline.stage import StageRunner


class Doubling(nn.Module):
    """A chunk in the middle of a model; remembers its outputs weakly."""

    head = None

    def __init__(self) -> None:
        super().__init__()
        self.outputs: list[weakref.ref[Tensor]] = []

    def forward(self, hidden: Tensor) -> Tensor:
        output = hidden * 2
        self.outputs.append(weakref.ref(output))
        return output


def test_an_output_that_was_sent_is_not_kept() -> None:
    model = Doubling()
    tokens = [torch.zeros(1, 2, dtype=torch.long)] * 2
    stage = StageRunner(model, tokens=tokens, targets=tokens, loss_scale=1.0, device=torch.device("cpu"))
    sent = stage.forward(torch.ones(1, 2, 3))
    assert torch.equal(sent, torch.full((1, 2, 3), 2.0))
    del sent
    assert stage.num_in_flight == 1
    assert [output() for output in model.outputs] == [None]
