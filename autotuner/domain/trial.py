"""A trial (one candidate chosen to be measured), its runs, and the events that tell its story."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from autotuner.domain.base import Value
from autotuner.domain.estimate import Estimate
from autotuner.domain.measurement import Failure, Measurement
from autotuner.domain.parallel import ParallelConfig

TrialState = Literal["queued", "launching", "running", "succeeded", "failed", "cancelled"]
TrialSource = Literal["baseline", "estimate", "sampler", "manual"]
RunState = Literal["launching", "running", "succeeded", "failed", "cancelled", "lost"]
RunPurpose = Literal["measure", "confirm"]
EventKind = Literal[
    "job.created",
    "job.state",
    "job.best",
    "job.note",
    "trial.created",
    "trial.state",
    "trial.progress",
    "trial.confirmed",
]


class Trial(Value):
    """`number` counts from 0 within its job; `reason` says in one sentence why this layout, now."""

    id: str
    job_id: str
    number: int
    config: ParallelConfig
    state: TrialState
    source: TrialSource
    reason: str
    estimate: Estimate | None = None
    measurement: Measurement | None = None
    failure: Failure | None = None
    attempts: int = 0
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None


class Run(Value):
    """One attempt of a trial on an executor. `name` is derived from trial and attempt and unique for ever."""

    name: str
    trial_id: str
    job_id: str
    attempt: int
    purpose: RunPurpose
    state: RunState
    created_at: datetime
    finished_at: datetime | None = None


class Event(Value):
    """One row of the append-only story of a job; `id` is the SSE id."""

    id: int
    job_id: str
    trial_id: str | None
    kind: EventKind
    data: dict[str, Any]
    created_at: datetime


def run_name(trial_id: str, *, attempt: int) -> str:
    """The external name of a run: known before it is submitted, so that a restart can ask for it."""
    return f"{trial_id}-a{attempt}"
