"""What responses look like where they are more than a domain value: views with counts, pages of lists.

The domain's own classes are the bodies otherwise; nothing is copied field by field.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping

from autotuner.domain.base import Value
from autotuner.domain.cluster import ClusterSpec, DeviceSpec
from autotuner.domain.job import Job
from autotuner.domain.model import ModelSpec
from autotuner.domain.trial import Trial, TrialState
from autotuner.storage.workers import WorkerRecord

_TRIAL_STATES: tuple[TrialState, ...] = typing.get_args(TrialState)


class JobView(Job):
    """A job with what a list shows of its trials: how many are in each state, and the best throughput so far."""

    trials: dict[str, int]
    best_tokens_per_second: float | None


class TrialView(Trial):
    """A trial with its layout's short name."""

    key: str


class JobPage(Value):
    """Jobs, newest first. `next_cursor` is null on the last page."""

    items: list[JobView]
    next_cursor: str | None


class TrialPage(Value):
    """Trials in the order in which they were chosen. `next_cursor` is null on the last page."""

    items: list[TrialView]
    next_cursor: str | None


class ExportedFile(Value):
    """One file of an export as text."""

    path: str
    text: str
    executable: bool


class ExportedBundle(Value):
    """The files that launch a job's best layout; the zip holds the same ones."""

    name: str
    files: list[ExportedFile]


PresetSpec: typing.TypeAlias = ModelSpec | DeviceSpec | ClusterSpec


class PresetItem(Value):
    """A preset by name: the values behind it, and where they come from."""

    name: str
    source: str
    spec: PresetSpec


class PresetList(Value):
    """All presets of one kind."""

    items: list[PresetItem]


class WorkerList(Value):
    """Workers that were heard from lately."""

    items: list[WorkerRecord]


class Health(Value):
    """`status` is "ok"; anything else is told by the HTTP status."""

    status: str


class Readiness(Value):
    """Whether requests can be served. With no worker alive jobs are accepted and wait."""

    status: str
    workers_alive: int


def job_view(job: Job, *, counts: Mapping[TrialState, int], best: Trial | None) -> JobView:
    """The job as the API shows it; `best` is its fastest measured trial."""
    fields = {name: getattr(job, name) for name in Job.model_fields}
    measured = None if best is None else best.measurement
    return JobView(
        **fields,
        trials={state: counts.get(state, 0) for state in _TRIAL_STATES},
        best_tokens_per_second=None if measured is None else measured.tokens_per_second,
    )


def trial_view(trial: Trial) -> TrialView:
    """The trial as the API shows it."""
    fields = {name: getattr(trial, name) for name in Trial.model_fields}
    return TrialView(**fields, key=trial.config.key())
