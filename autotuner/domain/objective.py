"""What is maximised, and what may be spent on finding it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from autotuner.domain.base import Positive, Seconds, Value

Objective = Literal["tokens_per_second", "tokens_per_second_per_device"]
"""Both are maximised; with a fixed number of devices they rank alike."""


class Budget(Value):
    """Limits of one job; whichever is reached first stops it.

    `patience_trials` stops after that many trials without a better layout; deadlines are per trial:
    start-up until the first step, no progress between steps, and the whole run.
    """

    max_trials: Annotated[int, Field(gt=0, le=100_000)] = 24
    max_seconds: Seconds = 3600.0
    max_device_seconds: Positive = 1e12
    patience_trials: Annotated[int, Field(gt=0, le=100_000)] = 12
    trial_timeout_seconds: Seconds = 120.0
    trial_startup_seconds: Seconds = 90.0
    trial_no_progress_seconds: Seconds = 60.0


class MeasurePlan(Value):
    """Steps of one profiling run: warm-up steps are run and not counted."""

    warmup_steps: Annotated[int, Field(ge=0, le=1000)] = 2
    steps: Annotated[int, Field(gt=0, le=10_000)] = 6
    # Leaders are run again this many times before a winner is named.
    confirm_runs: Annotated[int, Field(ge=0, le=10)] = 1
    confirm_leaders: Annotated[int, Field(ge=1, le=10)] = 2
