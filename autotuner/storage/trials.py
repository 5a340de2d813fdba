"""Trials: one row for each layout chosen to be measured.

Decides which row changes and which event tells of it, and keeps the columns that lists sort by.  Which state may
follow which is `domain/lifecycle.py`'s; what a result means is the scheduler's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias, get_args

from sqlalchemy import Connection, Row, func, insert, select, update

from autotuner.domain.errors import Conflict, NotFound
from autotuner.domain.estimate import Estimate
from autotuner.domain.lifecycle import advance_trial
from autotuner.domain.measurement import Failure, Measurement
from autotuner.domain.parallel import ParallelConfig
from autotuner.domain.trial import Trial, TrialSource, TrialState
from autotuner.storage.events import EventRepository
from autotuner.storage.tables import jobs, trials

# Inside the class `list` is its method.
Trials: TypeAlias = list[Trial]
Counts: TypeAlias = dict[TrialState, int]

STATES: tuple[TrialState, ...] = get_args(TrialState)


class TrialRepository:
    """The rows of trials. Every change of state writes its event in the same transaction."""

    def __init__(self, connection: Connection, *, events: EventRepository) -> None:
        self._connection = connection
        self._events = events

    def create(
        self,
        *,
        trial_id: str,
        job_id: str,
        config: ParallelConfig,
        source: TrialSource,
        reason: str,
        estimate: Estimate | None,
        now: datetime,
    ) -> Trial:
        """A queued trial with the job's next number. Raises NotFound (job), Conflict (the layout has a trial)."""
        number, key = self._next_number(job_id), config.key()
        taken = select(trials.c.number).where(trials.c.job_id == job_id, trials.c.key == key)
        same = self._connection.execute(taken).scalar_one_or_none()
        if same is not None:
            raise Conflict(f"job {job_id} has trial {same} for {key} already; run that one again instead")
        values = {
            "id": trial_id,
            "job_id": job_id,
            "number": number,
            "key": key,
            "state": "queued",
            "source": source,
            "reason": reason,
            "config": config,
            "estimate": estimate,
            "attempts": 0,
            "created_at": now,
        }
        row = self._connection.execute(insert(trials).values(values).returning(*trials.c)).one()
        data = {"state": "queued", "number": number, "key": key, "source": source, "reason": reason}
        self._events.append(job_id, "trial.created", trial_id=trial_id, data=data, now=now)
        return _trial(row)

    def get(self, trial_id: str) -> Trial:
        """Raises NotFound."""
        return _trial(self._row(trial_id))

    def list(self, job_id: str) -> Trials:
        """All trials of a job by number, in one query; none for a job that does not exist."""
        query = select(trials).where(trials.c.job_id == job_id).order_by(trials.c.number)
        return [_trial(row) for row in self._connection.execute(query)]

    def launching(self, trial_id: str, *, now: datetime) -> Trial:
        """About to be started, once more: `attempts` goes up. Raises Conflict, as all of these."""
        attempts = self._row(trial_id).attempts + 1
        return self._advance(trial_id, "launching", values={"attempts": attempts, "started_at": now}, now=now)

    def running(self, trial_id: str, *, now: datetime) -> Trial:
        """Its ranks report steps."""
        return self._advance(trial_id, "running", values={}, now=now)

    def succeeded(self, trial_id: str, measurement: Measurement, *, now: datetime) -> Trial:
        """Measured."""
        values = {**_measured(measurement), "finished_at": now}
        trial = self._advance(trial_id, "succeeded", values=values, now=now)
        self._refresh_best(trial.job_id)
        return trial

    def failed(self, trial_id: str, failure: Failure, *, now: datetime) -> Trial:
        """Ended without a measurement."""
        values = {"failure": failure, "failure_kind": failure.kind, "finished_at": now}
        return self._advance(trial_id, "failed", values=values, now=now)

    def cancelled(self, trial_id: str, *, now: datetime) -> Trial:
        """Given up because its job was cancelled."""
        return self._advance(trial_id, "cancelled", values={"finished_at": now}, now=now)

    def requeue(self, trial_id: str, *, now: datetime) -> Trial:
        """Its run was lost: back to the queue; `attempts` stays."""
        return self._advance(trial_id, "queued", values={"started_at": None}, now=now)

    def pooled(self, trial_id: str, measurement: Measurement, *, now: datetime) -> Trial:
        """Replace the measurement of a succeeded trial after a confirmation run. Raises Conflict in other states."""
        row = self._row(trial_id)
        if row.state != "succeeded":
            raise Conflict(f"trial {trial_id} is {row.state}; only a succeeded trial is confirmed")
        trial = self._update(trial_id, _measured(measurement))
        data = {**_told(trial), "runs": measurement.runs}
        self._events.append(row.job_id, "trial.confirmed", trial_id=trial_id, data=data, now=now)
        self._refresh_best(row.job_id)
        return trial

    def counts(self, job_id: str) -> Counts:
        """How many of a job's trials are in each state, zeros included."""
        return self.counts_for([job_id])[job_id]

    def counts_for(self, job_ids: Sequence[str]) -> dict[str, Counts]:
        """`counts` of several jobs in one query; every id asked for is in the answer."""
        query = (
            select(trials.c.job_id, trials.c.state, func.count())
            .where(trials.c.job_id.in_(job_ids))
            .group_by(trials.c.job_id, trials.c.state)
        )
        counts: dict[str, Counts] = {job_id: dict.fromkeys(STATES, 0) for job_id in job_ids}
        for job_id, state, count in self._connection.execute(query):
            counts[job_id][state] = count
        return counts

    def best_for(self, job_ids: Sequence[str]) -> dict[str, Trial]:
        """The trial with most tokens per second of each job, in one query; jobs without a measurement are left out."""
        fastest = func.row_number().over(
            partition_by=trials.c.job_id, order_by=(trials.c.tokens_per_second.desc(), trials.c.number)
        )
        measured = trials.c.job_id.in_(job_ids) & (trials.c.state == "succeeded")
        ranked = select(trials, fastest.label("place")).where(measured).subquery()
        rows = self._connection.execute(select(ranked).where(ranked.c.place == 1))
        return {row.job_id: _trial(row) for row in rows}

    def _advance(self, trial_id: str, state: TrialState, *, values: Mapping[str, Any], now: datetime) -> Trial:
        row = self._row(trial_id)
        trial = self._update(trial_id, {"state": advance_trial(row.state, state), **values})
        self._events.append(row.job_id, "trial.state", trial_id=trial_id, data=_told(trial), now=now)
        return trial

    def _row(self, trial_id: str) -> Row[Any]:
        row = self._connection.execute(select(trials).where(trials.c.id == trial_id)).one_or_none()
        if row is None:
            raise NotFound(f"no trial {trial_id}")
        return row

    def _update(self, trial_id: str, values: Mapping[str, Any]) -> Trial:
        statement = update(trials).where(trials.c.id == trial_id).values(**values).returning(*trials.c)
        return _trial(self._connection.execute(statement).one())

    def _next_number(self, job_id: str) -> int:
        if self._connection.execute(select(jobs.c.id).where(jobs.c.id == job_id)).one_or_none() is None:
            raise NotFound(f"no job {job_id}")
        query = select(func.coalesce(func.max(trials.c.number), -1) + 1).where(trials.c.job_id == job_id)
        number: int = self._connection.execute(query).scalar_one()
        return number

    def _refresh_best(self, job_id: str) -> None:
        best = (
            select(func.max(trials.c.tokens_per_second))
            .where(trials.c.job_id == job_id, trials.c.state == "succeeded")
            .scalar_subquery()
        )
        self._connection.execute(update(jobs).where(jobs.c.id == job_id).values(best_tokens_per_second=best))


def _measured(measurement: Measurement) -> dict[str, Any]:
    return {
        "measurement": measurement,
        "tokens_per_second": measurement.tokens_per_second,
        "step_seconds": measurement.step_seconds.median,
        "peak_memory_bytes": measurement.peak_memory_bytes,
    }


def _told(trial: Trial) -> dict[str, Any]:
    """What an event says of a trial: enough for a list to follow without asking again."""
    data: dict[str, Any] = {"state": trial.state, "number": trial.number, "key": trial.config.key()}
    if trial.measurement is not None:
        data["tokens_per_second"] = trial.measurement.tokens_per_second
        data["step_seconds"] = trial.measurement.step_seconds.median
    if trial.failure is not None:
        data["failure"] = trial.failure.kind
    return data


def _trial(row: Row[Any]) -> Trial:
    return Trial(
        id=row.id,
        job_id=row.job_id,
        number=row.number,
        config=row.config,
        state=row.state,
        source=row.source,
        reason=row.reason,
        estimate=row.estimate,
        measurement=row.measurement,
        failure=row.failure,
        attempts=row.attempts,
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
    )
