"""Who drives a job: claims with a lease that runs out and a fence that counts up.

A worker that was away too long loses its lease; the next claim raises the fence, and from then on the old worker's
writes are refused, whatever it believes.  Decides nothing about what a claimed job does.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Update, and_, or_, select, update

from autotuner.domain.errors import Conflict
from autotuner.domain.job import Job
from autotuner.storage.tables import jobs


class LeaseLost(Conflict):
    """Another worker holds the job, or it is gone: stop its processes and write nothing."""

    code = "lease-lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """`owner` may write for `job` as long as the row still has this `fence`. `job` is as it was when claimed."""

    job: Job
    owner: str
    fence: int

    @property
    def job_id(self) -> str:
        """The id of the claimed job."""
        return self.job.id


def claim_statement(owner: str, *, now: datetime, lease_seconds: float) -> Update:
    """One conditional UPDATE that takes the oldest job nobody drives; the same for both databases.

    Two workers never get the same job: on SQLite there is one writer at a time; PostgreSQL locks the row it chose and
    skips rows that others have locked (SQLite's compiler leaves FOR UPDATE out).
    """
    free = or_(jobs.c.lease_until.is_(None), jobs.c.lease_until <= now)
    oldest = (
        select(jobs.c.id)
        .where(jobs.c.state.in_(("queued", "running", "cancelling")), free)
        .order_by(jobs.c.created_at, jobs.c.id)
        .limit(1)
        .with_for_update(skip_locked=True)
        .scalar_subquery()
    )
    until = now + timedelta(seconds=lease_seconds)
    return update(jobs).where(jobs.c.id == oldest).values(lease_owner=owner, lease_until=until, fence=jobs.c.fence + 1)


class Leases:
    """The lease columns of the jobs table."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def take(self, owner: str, *, now: datetime, lease_seconds: float) -> Row[Any] | None:
        """The row of the job that is now `owner`'s, None when there is nothing to do."""
        statement = claim_statement(owner, now=now, lease_seconds=lease_seconds).returning(*jobs.c)
        return self._connection.execute(statement).one_or_none()

    def renew(self, claim: Claim, *, now: datetime, lease_seconds: float) -> bool:
        """Move the end of the lease; False when it is lost. One that ran out but was not taken is still ours."""
        until = now + timedelta(seconds=lease_seconds)
        result = self._connection.execute(update(jobs).where(_held(claim)).values(lease_until=until))
        return result.rowcount == 1

    def check(self, claim: Claim) -> None:
        """Raises LeaseLost unless the claim still stands."""
        query = select(jobs.c.lease_owner, jobs.c.fence).where(jobs.c.id == claim.job_id)
        row = self._connection.execute(query).one_or_none()
        if row is None:
            raise LeaseLost(f"job {claim.job_id} was deleted; {claim.owner} must stop driving it")
        if (row.lease_owner, row.fence) != (claim.owner, claim.fence):
            raise LeaseLost(
                f"job {claim.job_id} is held by {row.lease_owner or 'nobody'} with fence {row.fence}, no longer by"
                f" {claim.owner} with fence {claim.fence}; {claim.owner} must stop driving it"
            )

    def give_back(self, claim: Claim) -> None:
        """End the lease if it is still ours; else nothing."""
        self._connection.execute(update(jobs).where(_held(claim)).values(lease_owner=None, lease_until=None))


def _held(claim: Claim) -> ColumnElement[bool]:
    return and_(jobs.c.id == claim.job_id, jobs.c.lease_owner == claim.owner, jobs.c.fence == claim.fence)
