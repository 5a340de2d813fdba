"""Jobs: created, advanced along the life cycle, claimed by workers, deleted.

Decides which row changes and which event tells of it; which state may follow which is `domain/lifecycle.py`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeAlias

from sqlalchemy import Connection, Row, delete, insert, or_, select, update

from autotuner.domain.errors import Conflict, NotFound
from autotuner.domain.job import DesiredState, Job, JobState, TuningJob
from autotuner.domain.lifecycle import JOB_FINISHED, advance_job
from autotuner.storage.events import EventRepository
from autotuner.storage.leases import Claim, LeaseLost, Leases
from autotuner.storage.tables import jobs

__all__ = ["Claim", "JobRepository", "LeaseLost"]

# Inside the class `list` is its method.
Jobs: TypeAlias = list[Job]

_ASKED = {"run": "asked to go on", "pause": "asked to pause", "cancel": "asked to cancel"}


class JobRepository:
    """The rows of jobs. Every change of state writes its event in the same transaction."""

    def __init__(self, connection: Connection, *, events: EventRepository) -> None:
        self._connection = connection
        self._events = events
        self._leases = Leases(connection)

    def create(
        self, *, job_id: str, spec: TuningJob, candidates: int, rejections: Mapping[str, int], now: datetime
    ) -> Job:
        """A queued job. Raises Conflict when the id is taken."""
        if self._find(job_id) is not None:
            raise Conflict(f"job {job_id} exists already")
        values = {
            "id": job_id,
            "name": spec.name,
            "state": "queued",
            "desired_state": "run",
            "spec": spec,
            "candidates": candidates,
            "rejections": dict(rejections),
            "created_at": now,
            "stopped_because": "",
            "error": "",
            "fence": 0,
        }
        row = self._connection.execute(insert(jobs).values(values).returning(*jobs.c)).one()
        data = {"name": spec.name, "state": "queued", "candidates": candidates}
        self._events.append(job_id, "job.created", trial_id=None, data=data, now=now)
        return _job(row)

    def get(self, job_id: str) -> Job:
        """Raises NotFound."""
        return _job(self._row(job_id))

    def list(self, *, state: JobState | None, limit: int, before_id: str | None) -> Jobs:
        """Newest first, up to `limit`, those created before `before_id` if that is given."""
        query = select(jobs).order_by(jobs.c.created_at.desc(), jobs.c.id.desc()).limit(limit)
        if state is not None:
            query = query.where(jobs.c.state == state)
        if before_id is not None:
            cursor = select(jobs.c.created_at).where(jobs.c.id == before_id)
            created_at = self._connection.execute(cursor).scalar_one_or_none()
            # Deleted between two pages: ids sort by time of creation as well, only less strictly.
            earlier = (
                jobs.c.id < before_id
                if created_at is None
                else or_(jobs.c.created_at < created_at, _same_time_smaller_id(created_at, before_id))
            )
            query = query.where(earlier)
        return [_job(row) for row in self._connection.execute(query)]

    def set_state(
        self, job_id: str, state: JobState, *, now: datetime, stopped_because: str = "", error: str = ""
    ) -> Job:
        """Advance the job. Raises NotFound, and Conflict where the life cycle forbids it."""
        row = self._row(job_id)
        values: dict[str, Any] = {
            "state": advance_job(row.state, state),
            "stopped_because": stopped_because,
            "error": error,
            "finished_at": now if state in JOB_FINISHED else None,
        }
        if state == "running" and row.started_at is None:
            values["started_at"] = now
        data = {"state": state, "stopped_because": stopped_because, "error": error}
        self._events.append(job_id, "job.state", trial_id=None, data=data, now=now)
        return self._update(job_id, values)

    def set_desired(self, job_id: str, desired: DesiredState, *, now: datetime) -> Job:
        """Write down what the user wants; whoever drives the job carries it out. Raises NotFound."""
        row = self._row(job_id)
        if row.desired_state == desired:
            return _job(row)
        data = {"desired_state": desired, "message": _ASKED[desired]}
        self._events.append(job_id, "job.note", trial_id=None, data=data, now=now)
        return self._update(job_id, {"desired_state": desired})

    def delete(self, job_id: str) -> None:
        """Remove a finished job with its trials, runs and events. Raises NotFound, and Conflict while it goes on."""
        row = self._row(job_id)
        if row.state not in JOB_FINISHED:
            raise Conflict(f"job {job_id} is {row.state} and cannot be deleted; cancel it first")
        self._connection.execute(delete(jobs).where(jobs.c.id == job_id))

    def claim(self, owner: str, *, now: datetime, lease_seconds: float) -> Claim | None:
        """Take the oldest job that is queued, running or cancelling and that nobody drives. Its state stays."""
        row = self._leases.take(owner, now=now, lease_seconds=lease_seconds)
        return None if row is None else Claim(job=_job(row), owner=owner, fence=row.fence)

    def renew(self, claim: Claim, *, now: datetime, lease_seconds: float) -> bool:
        """Hold the job for `lease_seconds` from now; False when it is lost."""
        return self._leases.renew(claim, now=now, lease_seconds=lease_seconds)

    def check_fence(self, claim: Claim) -> None:
        """First line of every write of a worker. Raises LeaseLost."""
        self._leases.check(claim)

    def release(self, claim: Claim) -> None:
        """Let the job go; no error if it is lost already."""
        self._leases.give_back(claim)

    def _find(self, job_id: str) -> Row[Any] | None:
        return self._connection.execute(select(jobs).where(jobs.c.id == job_id)).one_or_none()

    def _row(self, job_id: str) -> Row[Any]:
        row = self._find(job_id)
        if row is None:
            raise NotFound(f"no job {job_id}")
        return row

    def _update(self, job_id: str, values: Mapping[str, Any]) -> Job:
        statement = update(jobs).where(jobs.c.id == job_id).values(**values).returning(*jobs.c)
        return _job(self._connection.execute(statement).one())


def _same_time_smaller_id(created_at: datetime, before_id: str) -> Any:
    return (jobs.c.created_at == created_at) & (jobs.c.id < before_id)


def _job(row: Row[Any]) -> Job:
    return Job(
        id=row.id,
        spec=row.spec,
        state=row.state,
        desired_state=row.desired_state,
        candidates=row.candidates,
        rejections=row.rejections,
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        stopped_because=row.stopped_because,
        error=row.error,
    )
