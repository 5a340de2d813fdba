"""Activations and their gradients between neighbouring stages.

Every operation is issued in one batch with the operation that crosses it, as both sides of a pair must be in flight
together: NCCL runs the operations of a pair of ranks in order, so two sends that face each other would wait for ever;
gloo does not buffer a send either.  Receives are waited for; sends are left running, at most `MAX_SENDS` at a time, and
their tensors kept alive meanwhile.  Which operation is due is the schedule's business.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from trials.mesh import ParallelMesh

MAX_SENDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Arriving:
    """A tensor on its way; it may be read after `Channel.wait`."""

    tensor: Tensor
    works: tuple[dist.Work, ...]


class Channel:
    """What one stage exchanges with the ranks of its pipeline: tensors of one shape."""

    def __init__(self, mesh: ParallelMesh, *, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        """`shape` is that of one micro-batch's hidden state between two stages."""
        self._group = mesh.pp
        self._shape, self._dtype, self._device = shape, dtype, device
        self._sends: deque[tuple[list[dist.Work], Tensor]] = deque()

    def start(self, outgoing: Tensor | None, to_rank: int | None, from_rank: int | None) -> Arriving | None:
        """Begin to send to one rank and receive from another in one batch; None where there is nothing or nobody."""
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
        if sent is not None:
            self._sends.append((works[-1:], sent))
        if incoming is None:
            return None
        return Arriving(tensor=incoming, works=tuple(works[:1] if separate else works))

    def wait(self, arriving: Arriving | None) -> Tensor | None:
        """The tensor that has arrived, or None where none was expected."""
        if arriving is not None:
            with self._group.stopwatch.span(self._group.clock):
                for work in arriving.works:
                    work.wait()
        self._wait_for_sends(limit=MAX_SENDS)
        return None if arriving is None else arriving.tensor

    def exchange(self, outgoing: Tensor | None, to_rank: int | None, from_rank: int | None) -> Tensor | None:
        """`start`, and wait for what arrives."""
        return self.wait(self.start(outgoing, to_rank, from_rank))

    def finish(self) -> None:
        """Wait for the sends still running; to be called at the end of every step."""
        self._wait_for_sends(limit=0)

    def _wait_for_sends(self, *, limit: int) -> None:
        while len(self._sends) > limit:
            works, _ = self._sends.popleft()
            with self._group.stopwatch.span(self._group.clock):
                for work in works:
                    work.wait()


class StageLinks:
    """The links of one stage. A missing neighbour makes an operation a no-op that gives None."""

    def __init__(self, channel: Channel, *, mesh: ParallelMesh) -> None:
        self._channel = channel
        self._previous = None if mesh.is_first_stage else mesh.pp.ranks[mesh.at.pp_rank - 1]
        self._next = None if mesh.is_last_stage else mesh.pp.ranks[mesh.at.pp_rank + 1]

    def receive_forward(self) -> Tensor | None:
        """Input of the next micro-batch from the previous stage."""
        return self._channel.exchange(None, None, self._previous)

    def send_forward(self, output: Tensor) -> None:
        """Output to the next stage."""
        self._channel.exchange(output, self._next, None)

    def receive_backward(self) -> Tensor | None:
        """Gradient of the oldest output in flight, from the next stage."""
        return self._channel.exchange(None, None, self._next)

    def send_backward(self, gradient: Tensor | None) -> None:
        """Gradient of an input to the previous stage."""
        self._channel.exchange(gradient, self._previous, None)

    def send_forward_receive_backward(self, output: Tensor) -> Tensor | None:
        """Both towards the next stage."""
        return self._channel.exchange(output, self._next, self._next)

    def send_backward_receive_forward(self, gradient: Tensor | None) -> Tensor | None:
        """Both towards the previous stage."""
        return self._channel.exchange(gradient, self._previous, self._previous)

    def finish(self) -> None:
        """Wait for the sends still running; to be called at the end of every step."""
        self._channel.finish()


class RingLinks:
    """The stages as a ring: chunk c + 1 is on the next stage, and after the last stage comes the first.

    What a wave sends one way it receives from the other side, so the waves of all stages meet as one shift of the ring.
    """

    def __init__(self, channel: Channel, *, mesh: ParallelMesh) -> None:
        ranks, stage = mesh.pp.ranks, mesh.at.pp_rank
        self._channel = channel
        self._previous, self._next = ranks[stage - 1], ranks[(stage + 1) % len(ranks)]

    def shift_forward(self, output: Tensor | None, *, receive: bool) -> Arriving | None:
        """Begin to send an output to the next stage, if there is one, and to receive one from the previous stage."""
        return self._channel.start(output, self._next, self._previous if receive else None)

    def shift_backward(self, gradient: Tensor | None, *, receive: bool) -> Arriving | None:
        """Begin to send a gradient to the previous stage, if there is one, and to receive one from the next stage."""
        return self._channel.start(gradient, self._previous, self._next if receive else None)

    def wait(self, arriving: Arriving | None) -> Tensor | None:
        """What has arrived, None where nothing was expected."""
        return self._channel.wait(arriving)

    def finish(self) -> None:
        """Wait for the sends still running; to be called at the end of every step."""
        self._channel.finish()
