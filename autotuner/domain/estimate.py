"""What the cost model predicts for one layout, broken down into parts that sum to the total."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from autotuner.domain.base import Lax, Value
from autotuner.domain.parallel import ParallelConfig


class TimeParts(Value):
    """Seconds of one step on the critical path; their sum is the step."""

    compute: float
    recompute: float
    tp_communication: float
    pp_communication: float
    dp_communication: float
    bubble: float
    optimizer: float
    overhead: float


class MemoryParts(Value):
    """Peak bytes of one rank of one pipeline stage; their sum is that stage's peak."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    buffers: float
    context: float


class StageMemory(Value):
    """One stage's memory."""

    stage: int
    num_layers: int
    total_bytes: float
    parts: MemoryParts


class Estimate(Value):
    """A prediction with its uncertainty: `sigma` is that of log(step seconds)."""

    config: ParallelConfig
    step_seconds: float
    tokens_per_second: float
    mfu: float | None
    memory_bytes: float
    probability_fits: float
    fits: bool
    sigma: float
    bubble_fraction: float
    time: TimeParts
    memory: Annotated[tuple[StageMemory, ...], Lax, Field(min_length=1)]
