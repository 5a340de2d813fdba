"""Activations and their gradients between neighbouring stages.

Every operation is issued in one batch with the operation that crosses it, as both sides of a pair must be in flight
together: NCCL runs the operations of a pair of ranks in order, so two sends that face each other would wait for ever;
gloo does not buffer a send either.  Receives are waited for; sends are left running, at most `MAX_SENDS` at a time, and
their tensors kept alive meanwhile.  Which operation is due is the schedule's business.
"""

from __future__ import annotations

from collections import deque

import torch
import torch.distributed as dist
from torch import Tensor

from trials.mesh import ParallelMesh

MAX_SENDS = 2


class StageLinks:
    """The links of one stage. A missing neighbour makes an operation a no-op that gives None."""

    def __init__(
        self, mesh: ParallelMesh, *, shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device
    ) -> None:
        """`shape` is [b, s, h] of one micro-batch."""
        self._group = mesh.pp
        self._shape, self._dtype, self._device = shape, dtype, device
        self._previous = None if mesh.is_first_stage else mesh.pp.ranks[mesh.at.pp_rank - 1]
        self._next = None if mesh.is_last_stage else mesh.pp.ranks[mesh.at.pp_rank + 1]
        self._sends: deque[tuple[list[dist.Work], Tensor]] = deque()

    def receive_forward(self) -> Tensor | None:
        """Input of the next micro-batch from the previous stage."""
        return self._exchange(None, None, self._previous)

    def send_forward(self, output: Tensor) -> None:
        """Output to the next stage."""
        self._exchange(output, self._next, None)

    def receive_backward(self) -> Tensor | None:
        """Gradient of the oldest output in flight, from the next stage."""
        return self._exchange(None, None, self._next)

    def send_backward(self, gradient: Tensor | None) -> None:
        """Gradient of an input to the previous stage."""
        self._exchange(gradient, self._previous, None)

    def send_forward_receive_backward(self, output: Tensor) -> Tensor | None:
        """Both towards the next stage."""
        return self._exchange(output, self._next, self._next)

    def send_backward_receive_forward(self, gradient: Tensor | None) -> Tensor | None:
        """Both towards the previous stage."""
        return self._exchange(gradient, self._previous, self._previous)

    def finish(self) -> None:
        """Wait for the sends still running; to be called at the end of every step."""
        self._wait_for_sends(limit=0)

    def _exchange(self, outgoing: Tensor | None, to_rank: int | None, from_rank: int | None) -> Tensor | None:
        operations: list[dist.P2POp] = []
        incoming: Tensor | None = None
        if from_rank is not None:
            incoming = torch.empty(self._shape, dtype=self._dtype, device=self._device)
            operations.append(dist.P2POp(dist.irecv, incoming, from_rank, group=self._group.handle))
        sent = None if outgoing is None or to_rank is None else outgoing.contiguous()
        if sent is not None and to_rank is not None:
            operations.append(dist.P2POp(dist.isend, sent, to_rank, group=self._group.handle))
        if not operations:
            return None
        with self._group.stopwatch.span(self._group.clock):
            works = dist.batch_isend_irecv(operations)
            # Accelerator backends may answer a batch with one handle; gloo gives one for each operation.
            separate = len(works) == len(operations)
            receives = works[:1] if separate and incoming is not None else ([] if separate else works)
            for work in receives:
                work.wait()
            if sent is not None and separate:
                self._sends.append((works[-1:], sent))
        self._wait_for_sends(limit=MAX_SENDS)
        return incoming

    def _wait_for_sends(self, *, limit: int) -> None:
        while len(self._sends) > limit:
            works, _ = self._sends.popleft()
            with self._group.stopwatch.span(self._group.clock):
                for work in works:
                    work.wait()
