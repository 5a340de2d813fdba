"""Runs the steps and takes their times: a step begins when all ranks are ready and ends with the slowest of them.

It decides when a run is hopelessly slow.  What is derived from the seconds (throughput, spread) is up to the service.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch

from trials.step import StepResult, Trainer

MIN_STEPS_BEFORE_ABORT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One finished step; `number` counts from 1, warm-up included. `seconds` is the slowest rank's."""

    number: int
    is_warmup: bool
    seconds: float
    result: StepResult


@dataclass(slots=True)
class Recording:
    """All finished steps. `breakdown_seconds` are this rank's own averages over the measured steps."""

    steps: list[StepRecord] = field(default_factory=list)
    breakdown_seconds: dict[str, float] = field(default_factory=dict)
    ended: Literal["completed", "aborted_slow"] = "completed"

    def seconds(self, *, is_warmup: bool) -> tuple[float, ...]:
        """Seconds of the warm-up or of the measured steps."""
        return tuple(step.seconds for step in self.steps if step.is_warmup == is_warmup)


def run_steps(trainer: Trainer, *, on_step: Callable[[StepRecord], None]) -> Recording:
    """Run warm-up and measured steps, or fewer if even the fastest measured one is above the request's limit."""
    steps = trainer.request.steps
    recording = Recording()
    totals: dict[str, float] = dict.fromkeys(
        ("compute", "tp_communication", "pp_communication", "dp_communication", "optimizer", "global_sync"), 0.0
    )
    _slowest(trainer, 0.0)  # All start together.
    for number in range(1, steps.warmup + steps.measured + 1):
        is_warmup = number <= steps.warmup
        record, spans = _timed_step(trainer, number=number, is_warmup=is_warmup)
        recording.steps.append(record)
        if not is_warmup:
            for name, seconds in spans.items():
                totals[name] += seconds
        on_step(record)
        if _is_hopeless(recording.seconds(is_warmup=False), limit_seconds=steps.abort_above_step_seconds):
            recording.ended = "aborted_slow"
            break
    num_measured = len(recording.seconds(is_warmup=False))
    recording.breakdown_seconds = {name: seconds / num_measured for name, seconds in totals.items()}
    return recording


def _timed_step(trainer: Trainer, *, number: int, is_warmup: bool) -> tuple[StepRecord, dict[str, float]]:
    """Run a step; its record, and this rank's seconds by kind of work ("compute" is what no span covers)."""
    trainer.stopwatch.drain()
    started = time.perf_counter()
    result = trainer.step(number - 1)
    _synchronize(trainer.device)
    elapsed = time.perf_counter() - started
    spans = trainer.stopwatch.drain()
    spans["compute"] = max(0.0, elapsed - sum(spans.values()))
    seconds = _slowest(trainer, elapsed)
    return StepRecord(number=number, is_warmup=is_warmup, seconds=seconds, result=result), spans


def _slowest(trainer: Trainer, seconds: float) -> float:
    """The largest value of all ranks, so that all decide alike; no rank leaves before all have come."""
    slowest = torch.tensor([seconds], device=trainer.device)
    return float(trainer.mesh.world.all_reduce_max_(slowest).item())


def _is_hopeless(measured_seconds: tuple[float, ...], *, limit_seconds: float | None) -> bool:
    if limit_seconds is None or len(measured_seconds) < MIN_STEPS_BEFORE_ABORT:
        return False
    return min(measured_seconds) > limit_seconds


def _synchronize(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize()
