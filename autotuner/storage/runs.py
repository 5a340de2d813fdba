"""Runs: each attempt of a trial on an executor, with what that attempt alone measured.

The row exists before anything is started, so that after a crash the executor can be asked for exactly this name.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, insert, select, update

from autotuner.domain.errors import Conflict, NotFound
from autotuner.domain.lifecycle import RUN_ACTIVE, advance_run
from autotuner.domain.measurement import Measurement
from autotuner.domain.trial import Run, RunPurpose, RunState
from autotuner.storage.tables import runs, trials


class RunRepository:
    """The rows of runs. Runs write no events: their trial does."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def create(self, *, name: str, trial_id: str, job_id: str, attempt: int, purpose: RunPurpose, now: datetime) -> Run:
        """A run that is about to be launched. Raises NotFound (trial), Conflict (the name was used before)."""
        owner = select(trials.c.job_id).where(trials.c.id == trial_id)
        if self._connection.execute(owner).scalar_one_or_none() != job_id:
            raise NotFound(f"no trial {trial_id} in job {job_id}")
        used = select(runs.c.name).where((runs.c.name == name) | _attempt(trial_id, attempt))
        if self._connection.execute(used).first() is not None:
            raise Conflict(f"run {name} (attempt {attempt} of trial {trial_id}) exists already; use a new attempt")
        values = {
            "name": name,
            "trial_id": trial_id,
            "job_id": job_id,
            "attempt": attempt,
            "purpose": purpose,
            "state": "launching",
            "created_at": now,
        }
        return _run(self._connection.execute(insert(runs).values(values).returning(*runs.c)).one())

    def set_state(self, name: str, state: RunState, *, now: datetime, measurement: Measurement | None) -> Run:
        """Advance a run. A measurement comes with success and only then. Raises NotFound, Conflict."""
        row = self._connection.execute(select(runs.c.state).where(runs.c.name == name)).one_or_none()
        if row is None:
            raise NotFound(f"no run {name}")
        new = advance_run(row.state, state)
        if (measurement is not None) != (new == "succeeded"):
            given = "a" if measurement is not None else "no"
            raise Conflict(f"run {name} cannot become {new} with {given} measurement; only a success has one")
        values = {"state": new, "measurement": measurement, "finished_at": None if new in RUN_ACTIVE else now}
        statement = update(runs).where(runs.c.name == name).values(values).returning(*runs.c)
        return _run(self._connection.execute(statement).one())

    def active(self, job_id: str) -> list[Run]:
        """The job's runs that have not ended, oldest first."""
        return self._select(runs.c.job_id == job_id, runs.c.state.in_(RUN_ACTIVE))

    def of_job(self, job_id: str) -> list[Run]:
        """All runs of a job, oldest first."""
        return self._select(runs.c.job_id == job_id)

    def of_trial(self, trial_id: str) -> list[Run]:
        """All runs of a trial by attempt."""
        return self._select(runs.c.trial_id == trial_id)

    def measurements(self, trial_id: str) -> list[Measurement]:
        """What each successful run of a trial measured, by attempt: never pooled, so pooling can be redone."""
        query = (
            select(runs.c.measurement)
            .where(runs.c.trial_id == trial_id, runs.c.state == "succeeded")
            .order_by(runs.c.attempt)
        )
        return [value for value in self._connection.execute(query).scalars() if value is not None]

    def active_names(self) -> list[str]:
        """The names of all runs of all jobs that have not ended."""
        query = select(runs.c.name).where(runs.c.state.in_(RUN_ACTIVE)).order_by(runs.c.created_at, runs.c.name)
        return list(self._connection.execute(query).scalars())

    def _select(self, *conditions: ColumnElement[bool]) -> list[Run]:
        query = select(runs).where(*conditions).order_by(runs.c.created_at, runs.c.trial_id, runs.c.attempt)
        return [_run(row) for row in self._connection.execute(query)]


def _attempt(trial_id: str, attempt: int) -> ColumnElement[bool]:
    return (runs.c.trial_id == trial_id) & (runs.c.attempt == attempt)


def _run(row: Row[Any]) -> Run:
    return Run(
        name=row.name,
        trial_id=row.trial_id,
        job_id=row.job_id,
        attempt=row.attempt,
        purpose=row.purpose,
        state=row.state,
        created_at=row.created_at,
        finished_at=row.finished_at,
    )
