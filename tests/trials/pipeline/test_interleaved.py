"""The interleaved schedule on paper: stages that record their passes and waves, and a ring that blocks like NCCL's.

No tensor travels here; that the numbers are right is `test_parity_interleaved.py`'s business.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest

from trials.pipeline.interleaved import run_interleaved

Item = tuple[str, int, int]  # forward or backward, chunk of the model, micro-batch


@dataclass
class Wave:
    """One batch of operations: what goes to which stage, and from which stage something comes."""

    sent: Item | None
    to_stage: int
    from_stage: int | None


@dataclass
class FakeStage:
    """Plays the links of one stage and records what its chunks do."""

    stage: int
    num_stages: int
    passes: list[Item] = field(default_factory=list)
    waves: list[Wave] = field(default_factory=list)
    awaited: list[tuple[Item, object]] = field(default_factory=list)

    def shift_forward(self, output: object, *, receive: bool) -> object:
        return self._shift(output, to_stage=self.stage + 1, from_stage=self.stage - 1 if receive else None)

    def shift_backward(self, gradient: object, *, receive: bool) -> object:
        return self._shift(gradient, to_stage=self.stage - 1, from_stage=self.stage + 1 if receive else None)

    def _shift(self, sent: object, *, to_stage: int, from_stage: int | None) -> object:
        source = None if from_stage is None else from_stage % self.num_stages
        if sent is None and source is None:
            return None
        self.waves.append(Wave(sent, to_stage % self.num_stages, source))
        return None if source is None else len(self.waves) - 1

    def wait(self, arriving: object) -> object:
        return arriving

    def finish(self) -> None:
        pass


@dataclass
class FakeChunk:
    """Counts micro-batches of one chunk of the model."""

    links: FakeStage
    chunk: int
    num_chunks: int
    num_microbatches: int
    num_forward: int = 0
    num_backward: int = 0

    def forward(self, received: object) -> Item:
        item = ("forward", self.chunk, self.num_forward)
        self.num_forward += 1
        self._record(item, received)
        return item

    def backward(self, received: object) -> Item | None:
        item = ("backward", self.chunk, self.num_backward)
        self.num_backward += 1
        self._record(item, received)
        return None if self.chunk == 0 else item  # tokens have no gradient

    def _record(self, item: Item, received: object) -> None:
        self.links.passes.append(item)
        if received is not None:
            self.links.awaited.append((item, received))


def played(p: int, v: int, m: int) -> list[FakeStage]:
    stages = [FakeStage(stage, p) for stage in range(p)]
    for links in stages:
        chunks = [FakeChunk(links, c, p * v, m) for c in range(links.stage, p * v, p)]
        run_interleaved(chunks, links, num_stages=p, stage=links.stage)
    return stages


def delivered(stages: list[FakeStage]) -> list[dict[int, Item]]:
    """What each stage's waves receive if a wave blocks until both ends of all its operations are there."""
    done = [0] * len(stages)
    received: list[dict[int, Item]] = [{} for _ in stages]
    channels: dict[tuple[int, int], tuple[deque[tuple[int, Item]], deque[int]]] = {}
    posted, open_operations = [-1] * len(stages), [0] * len(stages)
    moved = True
    while moved:
        moved = False
        for links in stages:
            at, stage = done[links.stage], links.stage
            if at == len(links.waves):
                continue
            if posted[stage] < at:
                posted[stage], moved, wave = at, True, links.waves[at]
                if wave.sent is not None:
                    open_operations[stage] += 1
                    channels.setdefault((stage, wave.to_stage), (deque(), deque()))[0].append((stage, wave.sent))
                if wave.from_stage is not None:
                    open_operations[stage] += 1
                    channels.setdefault((wave.from_stage, stage), (deque(), deque()))[1].append(at)
            if open_operations[stage] == 0:
                done[stage], moved = at + 1, True
        for (sender, receiver), (sends, receives) in channels.items():
            while sends and receives:
                received[receiver][receives.popleft()] = sends.popleft()[1]
                open_operations[sender] -= 1
                open_operations[receiver] -= 1
                moved = True
    stuck = [(s.stage, done[s.stage], len(s.waves)) for s in stages if done[s.stage] < len(s.waves)]
    assert not stuck, f"stages that wait for ever: {stuck}"
    return received


SIZES = [(p, v, groups * p) for p in (2, 3, 4, 5, 8) for v in (2, 3, 5) for groups in (1, 2, 3, 6)]


@pytest.mark.parametrize(("p", "v", "m"), SIZES)
def test_every_pass_gets_what_its_neighbour_made_and_nobody_waits_for_ever(p: int, v: int, m: int) -> None:
    stages = played(p, v, m)
    received = delivered(stages)
    for links in stages:
        assert sorted(links.passes) == sorted(
            (kind, c, i) for kind in ("forward", "backward") for c in range(links.stage, p * v, p) for i in range(m)
        )
        awaited = {item: received[links.stage][wave] for item, wave in links.awaited}
        for kind, chunk, microbatch in links.passes:
            source = chunk - 1 if kind == "forward" else chunk + 1
            if 0 <= source < p * v:
                assert awaited[kind, chunk, microbatch] == (kind, source, microbatch)
            else:
                assert (kind, chunk, microbatch) not in awaited


def test_two_stages_of_two_chunks_run_in_the_published_order() -> None:
    # p 2, v 2, m 4. Forward: micro-batches 0 1 through chunk 0 (1 on stage 1), then chunk 2 (3), then 2 3 likewise.
    # Stage 0 warms up with 2 x 1 + 2 x 1 = 4 passes, stage 1 with 2; then one forward, one backward.
    first, second = played(2, 2, 4)
    f, b = "forward", "backward"
    assert second.passes == [
        *[(f, 1, 0), (f, 1, 1)],
        *[(f, 3, 0), (b, 3, 0), (f, 3, 1), (b, 3, 1), (f, 1, 2), (b, 1, 0), (f, 1, 3), (b, 1, 1)],
        *[(f, 3, 2), (b, 3, 2), (f, 3, 3), (b, 3, 3)],
        *[(b, 1, 2), (b, 1, 3)],
    ]
    assert first.passes[:4] == [(f, 0, 0), (f, 0, 1), (f, 2, 0), (f, 2, 1)]
    assert first.passes[4:8] == [(f, 0, 2), (b, 2, 0), (f, 0, 3), (b, 2, 1)]


@pytest.mark.parametrize(("p", "v", "m"), SIZES)
def test_no_more_passes_are_in_flight_than_published(p: int, v: int, m: int) -> None:
    # Narayanan et al. 2021: the first stage holds 1 + (p - 1) / (pv) times the pv chunk-activations of plain 1F1B.
    # Stage i has its warm-up and one more, never more than all.
    for links in played(p, v, m):
        in_flight = peak = 0
        for kind, _, _ in links.passes:
            in_flight += 1 if kind == "forward" else -1
            peak = max(peak, in_flight)
        assert peak == min(2 * (p - links.stage - 1) + p * (v - 1) + 1, v * m)
