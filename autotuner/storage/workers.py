"""Which workers are alive, so that a page can say why nothing runs. Claims do not depend on it."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from typing import TypeAlias

from sqlalchemy import Connection, delete, insert, select, update

from autotuner.domain.base import Value
from autotuner.storage.tables import workers


class WorkerRecord(Value):
    """A worker process; `devices` is how many ranks it can run at once."""

    id: str
    host: str
    pid: int
    version: str
    devices: int
    started_at: datetime
    heartbeat_at: datetime


# Inside the class `list` is its method.
Records: TypeAlias = list[WorkerRecord]


class WorkerRepository:
    """The rows of workers."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def beat(self, worker_id: str, *, host: str, version: str, devices: int, now: datetime) -> None:
        """A sign of life, sent by the worker process itself (its pid is recorded). The first one registers it."""
        values = {"host": host, "pid": os.getpid(), "version": version, "devices": devices, "heartbeat_at": now}
        changed = self._connection.execute(update(workers).where(workers.c.id == worker_id).values(values))
        if changed.rowcount == 0:
            self._connection.execute(insert(workers).values(id=worker_id, started_at=now, **values))

    def list(self, *, now: datetime, alive_within_seconds: float) -> Records:
        """Workers whose last sign of life is at most that old, in the order they were started."""
        since = now - timedelta(seconds=alive_within_seconds)
        query = select(workers).where(workers.c.heartbeat_at >= since).order_by(workers.c.started_at, workers.c.id)
        return [
            WorkerRecord(
                id=row.id,
                host=row.host,
                pid=row.pid,
                version=row.version,
                devices=row.devices,
                started_at=row.started_at,
                heartbeat_at=row.heartbeat_at,
            )
            for row in self._connection.execute(query)
        ]

    def remove(self, worker_id: str) -> None:
        """A worker that ends says goodbye; no error if it is unknown."""
        self._connection.execute(delete(workers).where(workers.c.id == worker_id))
