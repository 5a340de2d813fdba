"""A chunk's micro-batches in flight: forward keeps what backward will need, first in, first out.

It decides what is kept and freed; the order of calls is the schedules'.  An output is not kept: once it has been sent
its memory is free, for backward needs only the graph behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor

from trials.backward import BackwardRoot
from trials.model import ChunkModel


class StageRunner:
    """Runs one chunk of the model, a whole stage where stages are not interleaved, over the micro-batches of one step.

    `tokens` and `targets` are lists of [b, s], one a micro-batch; read only where the chunk needs them. `loss` sums the
    last chunk's losses, each times `loss_scale`.
    """

    def __init__(
        self,
        model: ChunkModel,
        *,
        tokens: Sequence[Tensor],
        targets: Sequence[Tensor],
        loss_scale: float,
        device: torch.device,
    ) -> None:
        self._model, self._loss_scale = model, loss_scale
        self._tokens, self._targets = iter(tokens), iter(targets)
        self._in_flight: deque[tuple[Tensor, BackwardRoot]] = deque()
        self.num_microbatches = len(tokens)
        self.loss = torch.zeros((), device=device)

    @property
    def num_in_flight(self) -> int:
        """Micro-batches whose backward has not run yet."""
        return len(self._in_flight)

    def forward(self, received: Tensor | None) -> Tensor:
        """Run the next micro-batch: hidden [b, s, h] from the chunk before (None on the first) -> what to send."""
        targets = next(self._targets)
        stage_input = next(self._tokens) if received is None else received.requires_grad_()
        output: Tensor = self._model(stage_input)
        if self._model.head is not None:
            output = self._model.loss(output, targets, scale=self._loss_scale)
            self.loss += output.detach()
        self._in_flight.append((stage_input, BackwardRoot(output)))
        return output.detach()

    def backward(self, received: Tensor | None) -> Tensor | None:
        """Backward of the oldest micro-batch: gradient of its output (None on the last) -> gradient of its input."""
        stage_input, root = self._in_flight.popleft()
        root.backward(received)
        gradient: Tensor | None = stage_input.grad
        return gradient
