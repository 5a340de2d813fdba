"""PostgreSQL: the same promises as on SQLite - one writer at a time, readers see one moment.

An advisory lock at the start of each write makes event ids rise in the order of commits (readers of news resume
"after id" and would otherwise skip one) and makes read-modify-write safe.  Writes are a few rows, so the lock is
short; it is released by the end of the transaction, and waiting for it is bounded.
"""

from __future__ import annotations

from sqlalchemy import URL, Connection, Engine, create_engine, event

from autotuner.domain.errors import StorageUnavailable
from autotuner.storage.errors import BUSY_TIMEOUT_SECONDS
from autotuner.storage.types import json_text

WRITER_LOCK = 0x6175746F74756E65
"""The key of the advisory lock: "autotune" in ASCII."""


def make_engine(url: URL, *, writes: bool) -> Engine:
    """Connections that may write, or that read one snapshot and can write nothing. Raises StorageUnavailable."""
    options = {} if writes else {"postgresql_readonly": True, "isolation_level": "REPEATABLE READ"}
    try:
        engine = create_engine(
            url,
            pool_size=10,
            max_overflow=30,
            pool_timeout=BUSY_TIMEOUT_SECONDS,
            pool_pre_ping=True,
            json_serializer=json_text,
            connect_args={"connect_timeout": int(BUSY_TIMEOUT_SECONDS)},
            execution_options=options,
        )
    except ModuleNotFoundError as error:
        raise StorageUnavailable(
            f"{url.render_as_string()} needs the driver {error.name}; run `pip install 'psycopg[binary]'`"
        ) from error
    if writes:

        @event.listens_for(engine, "begin")
        def _lock(connection: Connection) -> None:
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{BUSY_TIMEOUT_SECONDS:.0f}s'")
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({WRITER_LOCK})")

    return engine
