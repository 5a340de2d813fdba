"""A stage's micro-batches in flight: forward keeps what backward will need, first in, first out.

It decides what is kept and freed; the order of calls is the schedules'.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor

from trials.backward import backward_from
from trials.model import StageModel


class StageRunner:
    """Runs one stage over the micro-batches of one step.

    `tokens` and `targets` are lists of [b, s], one a micro-batch; read only where the stage needs them. `loss` sums the
    last stage's losses, each times `loss_scale`.
    """

    def __init__(
        self,
        model: StageModel,
        *,
        tokens: Sequence[Tensor],
        targets: Sequence[Tensor],
        loss_scale: float,
        device: torch.device,
    ) -> None:
        self._model, self._loss_scale = model, loss_scale
        self._tokens, self._targets = iter(tokens), iter(targets)
        self._in_flight: deque[tuple[Tensor, Tensor]] = deque()
        self.num_microbatches = len(tokens)
        self.loss = torch.zeros((), device=device)

    def forward(self, received: Tensor | None) -> Tensor:
        """Run the next micro-batch: hidden [b, s, h] from the previous stage (None on the first) -> what to send."""
        targets = next(self._targets)
        stage_input = next(self._tokens) if received is None else received.requires_grad_()
        output: Tensor = self._model(stage_input)
        if self._model.head is not None:
            output = self._model.loss(output, targets, scale=self._loss_scale)
            self.loss += output.detach()
        self._in_flight.append((stage_input, output))
        return output.detach()

    def backward(self, received: Tensor | None) -> Tensor | None:
        """Backward of the oldest micro-batch: gradient of its output (None on the last) -> gradient of its input."""
        stage_input, output = self._in_flight.popleft()
        backward_from(output, received)
        gradient: Tensor | None = stage_input.grad
        return gradient
