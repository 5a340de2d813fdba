"""What was measured, and how a run failed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from autotuner.domain.base import Lax, Value

FailureKind = Literal[
    "out_of_memory",
    "host_out_of_memory",
    "hang",
    "timeout",
    "launch_error",
    "crash",
    "diverged",
    "mismatch",
    "lost",
    "cancelled",
]


class StepSeconds(Value):
    """Statistics of the measured steps; warm-up is not in them."""

    min: float
    median: float
    p10: float
    p90: float
    count: int


class Environment(Value):
    """Where a measurement was taken, so that figures from different places are not mixed."""

    hostname: str = ""
    device_name: str = ""
    torch_version: str = ""
    python_version: str = ""
    backend: str = ""
    threads_per_rank: int = 0


class Measurement(Value):
    """One trial's measured truth. All runs of a trial are pooled in it; `samples_seconds` holds every step."""

    step_seconds: StepSeconds
    samples_seconds: Annotated[tuple[float, ...], Lax, Field(min_length=1)]
    tokens_per_second: float
    tokens_per_second_per_device: float
    mfu: float | None
    peak_memory_bytes: int
    peak_memory_per_stage_bytes: Annotated[tuple[int, ...], Lax]
    breakdown_seconds: dict[str, float] = Field(default_factory=dict)
    losses: Annotated[tuple[float, ...], Lax] = ()
    startup_seconds: float
    runs: int = 1
    environment: Environment = Environment()


class Failure(Value):
    """How a run ended without a measurement: the kind decides what the search learns from it."""

    kind: FailureKind
    message: str
    rank: int | None = None
    log_tail: str = ""
    hint: str = ""
