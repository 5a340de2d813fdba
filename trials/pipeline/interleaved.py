"""Interleaved 1F1B (Narayanan et al. 2021, section 2.2): v chunks a stage make the bubble v times smaller.

Shapes: p stages, v chunks on each, m micro-batches, a multiple of p.  Forward passes go in groups of p micro-batches
through all chunks: number k is micro-batch p floor(k / pv) + k mod p of chunk floor((k mod pv) / p); backward passes
likewise, the last chunk first.  Stage i warms up with 2 (p - i - 1) + p (v - 1) of them, so that its first gradient is
there when it needs it.

Every forward and every backward ends in a shift of the ring (p2p.py): what it sends meets the receive of the same wave
on the neighbour, so no two sends face each other.  A receive begins one pass before it is needed and is waited for only
then: what arrives for the next forward travels during a backward, and the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence

from trials.pipeline.p2p import Arriving, RingLinks
from trials.pipeline.stage import StageRunner


def run_interleaved(chunks: Sequence[StageRunner], links: RingLinks, *, num_stages: int, stage: int) -> None:
    """Run all micro-batches through this stage's chunks, which are in model order."""
    passes = _Passes(chunks, links, num_stages=num_stages, stage=stage)
    total = len(chunks) * chunks[0].num_microbatches
    num_warmup = min(2 * (num_stages - stage - 1) + num_stages * (len(chunks) - 1), total)

    # Warm-up: fill the pipeline behind this stage, several chunks deep.
    received = passes.first_input()
    for number in range(num_warmup):
        received = passes.forward(number, received)
    gradient = passes.first_gradient()

    # Steady: one forward, one backward, of different chunks.
    for number in range(total - num_warmup):
        received = passes.forward(num_warmup + number, received)
        gradient = passes.backward(number, gradient)

    # Cool-down: backward of what the warm-up left in flight.
    for number in range(total - num_warmup, total):
        gradient = passes.backward(number, gradient)

    links.finish()


class _Passes:
    """Forward and backward by their number, each with the shift that follows it."""

    def __init__(self, chunks: Sequence[StageRunner], links: RingLinks, *, num_stages: int, stage: int) -> None:
        self._chunks, self._links, self._num_stages = chunks, links, num_stages
        self._is_first_stage, self._is_last_stage = stage == 0, stage == num_stages - 1
        self._total = len(chunks) * chunks[0].num_microbatches

    def first_input(self) -> Arriving | None:
        """What forward 0 waits for."""
        return self._links.shift_forward(None, receive=self._receives_forward(0))

    def first_gradient(self) -> Arriving | None:
        """What backward 0 waits for."""
        return self._links.shift_backward(None, receive=self._receives_backward(0))

    def forward(self, number: int, arriving: Arriving | None) -> Arriving | None:
        """Forward `number` of what arrives; returns what arrives for the next one."""
        chunk = self._chunk(number)
        output = self._chunks[chunk].forward(self._links.wait(arriving))
        is_end = self._is_last_stage and chunk == len(self._chunks) - 1
        return self._links.shift_forward(None if is_end else output, receive=self._receives_forward(number + 1))

    def backward(self, number: int, arriving: Arriving | None) -> Arriving | None:
        """Backward `number` with the gradient that arrives; returns what arrives for the next one."""
        chunk = len(self._chunks) - 1 - self._chunk(number)
        gradient = self._chunks[chunk].backward(self._links.wait(arriving))
        return self._links.shift_backward(gradient, receive=self._receives_backward(number + 1))

    def _chunk(self, number: int) -> int:
        return number // self._num_stages % len(self._chunks)

    def _receives_forward(self, number: int) -> bool:
        # The first chunk of all begins with tokens.
        return number < self._total and not (self._is_first_stage and self._chunk(number) == 0)

    def _receives_backward(self, number: int) -> bool:
        # The last chunk of all begins with its loss; backward passes count chunks from there.
        return number < self._total and not (self._is_last_stage and self._chunk(number) == 0)
