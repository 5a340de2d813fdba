"""Column types: times that keep their zone, and domain values as JSON.

Decides how a Python value becomes a column's value.  Which columns there are is in `tables.py`.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from sqlalchemy import JSON, DateTime, Dialect
from sqlalchemy.types import TypeDecorator

from autotuner.domain.base import Value
from autotuner.domain.errors import InvalidInput
from autotuner.storage.reader import pack, unpack

V = TypeVar("V", bound=Value)


def json_text(value: Any) -> str:
    """JSON as it goes into a column. Raises InvalidInput for what JSON has not: NaN, infinities, foreign objects."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"cannot be stored as JSON: {error}") from error


class UtcDateTime(TypeDecorator[datetime]):
    """An aware time, stored as UTC and read back as UTC.

    SQLite has no time zones: `DateTime(timezone=True)` alone gives naive times there.
    Raises InvalidInput for a naive one.
    """

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """To the column: UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise InvalidInput(f"the time {value.isoformat()} has no zone; use datetime.now(UTC)")
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def process_result_value(
        self,
        value: datetime | None,
        dialect: Dialect,  # noqa: ARG002 - SQLAlchemy's signature
    ) -> datetime | None:
        """From the column: aware, UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class ValueJson(TypeDecorator[V], Generic[V]):
    """A domain value of one class as a JSON object; SQL NULL where there is none. Read through `reader.unpack`."""

    impl = JSON(none_as_null=True)
    cache_ok = True

    def __init__(self, kind: type[V]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: V | None, dialect: Dialect) -> Any:  # noqa: ARG002 - SQLAlchemy's signature
        """To the column: the value's JSON with its schema number."""
        return None if value is None else pack(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> V | None:  # noqa: ARG002 - SQLAlchemy's signature
        """From the column: the value, whatever version wrote it."""
        return None if value is None else unpack(self.kind, value)
