"""Calibrations and probe results: one JSON document for each key, the last one wins."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, insert, select, update

from autotuner.storage.tables import calibrations


class CalibrationRepository:
    """Documents by key. What is in them is the caller's business."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def put(self, key: str, payload: Mapping[str, Any], *, now: datetime) -> None:
        """Store a document in place of an older one. Plain JSON only; NaN is refused with InvalidInput."""
        values = {"payload": dict(payload), "created_at": now}
        changed = self._connection.execute(update(calibrations).where(calibrations.c.key == key).values(values))
        if changed.rowcount == 0:
            self._connection.execute(insert(calibrations).values(key=key, **values))

    def get(self, key: str) -> dict[str, Any] | None:
        """The document, None if there is none."""
        query = select(calibrations.c.payload).where(calibrations.c.key == key)
        payload: dict[str, Any] | None = self._connection.execute(query).scalar_one_or_none()
        return payload
