"""The append-only story of jobs: one row for each change, written in the transaction of the change itself."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select

from autotuner.domain.trial import Event, EventKind
from autotuner.storage.tables import events


class EventRepository:
    """Events of all jobs. Ids rise in the order of commits, so "after id" never skips one."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def append(
        self, job_id: str, kind: EventKind, *, trial_id: str | None, data: Mapping[str, Any], now: datetime
    ) -> Event:
        """Write one event. `data` is plain JSON; NaN is refused with InvalidInput."""
        values = {"job_id": job_id, "trial_id": trial_id, "kind": kind, "data": dict(data), "created_at": now}
        row = self._connection.execute(insert(events).values(values).returning(*events.c)).one()
        return _event(row)

    def after(self, event_id: int, *, job_id: str | None, limit: int) -> list[Event]:
        """Up to `limit` events with an id above `event_id`, oldest first; of all jobs if `job_id` is None."""
        query = select(events).where(events.c.id > event_id).order_by(events.c.id).limit(limit)
        if job_id is not None:
            query = query.where(events.c.job_id == job_id)
        return [_event(row) for row in self._connection.execute(query)]

    def of_kind(self, job_id: str, kind: EventKind) -> list[Event]:
        """All events of one kind of one job, oldest first."""
        query = select(events).where(events.c.job_id == job_id, events.c.kind == kind).order_by(events.c.id)
        return [_event(row) for row in self._connection.execute(query)]

    def last_id(self) -> int:
        """The id of the newest event, 0 when there is none: where a reader of news starts."""
        newest: int = self._connection.execute(select(func.coalesce(func.max(events.c.id), 0))).scalar_one()
        return newest


def _event(row: Row[Any]) -> Event:
    return Event(
        id=row.id, job_id=row.job_id, trial_id=row.trial_id, kind=row.kind, data=row.data, created_at=row.created_at
    )
