"""The database as the rest of the program sees it: opened by URL, read and written in blocks.

A block is a transaction: `write()` commits at its end and rolls back if it is left by an exception; nobody else
commits.  Writers queue up, so keep the block short: no subprocess, no HTTP and no second `write()` inside it.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from sqlalchemy import URL, Engine, make_url
from sqlalchemy.exc import ArgumentError

from autotuner.domain.errors import StorageUnavailable
from autotuner.storage import migrate, postgresql, sqlite
from autotuner.storage.errors import translated
from autotuner.storage.store import Store

SQLITE_DRIVERS = ("sqlite", "sqlite+pysqlite")
POSTGRESQL_DRIVER = "postgresql+psycopg"


class Database:
    """Safe to share between threads. Close it in the end: `close()` or `with`."""

    def __init__(self, *, reader: Engine, writer: Engine, path: Path | None) -> None:
        """Use `open` or `connect`. `path` is the SQLite file, None on a server."""
        self._reader = reader
        self._writer = writer
        self._path = path
        self._watch_lock = threading.Lock()
        self._watch: sqlite3.Connection | None = None

    @classmethod
    def open(cls, url: str) -> Self:
        """Connect and upgrade to this version's tables. Raises StorageUnavailable."""
        database = cls.connect(url)
        try:
            database.upgrade()
        except BaseException:
            database.close()
            raise
        return database

    @classmethod
    def connect(cls, url: str) -> Self:
        """Connect and change no table. Raises StorageUnavailable for a wrong URL, driver or place."""
        parsed = _parse(url)
        if parsed.drivername == POSTGRESQL_DRIVER:
            return cls(
                reader=postgresql.make_engine(parsed, writes=False),
                writer=postgresql.make_engine(parsed, writes=True),
                path=None,
            )
        path = sqlite.database_path(parsed)
        sqlite.prepare_file(path, mounts=sqlite.read_mounts())
        return cls(
            reader=sqlite.make_engine(path, begin="BEGIN"),
            writer=sqlite.make_engine(path, begin="BEGIN IMMEDIATE"),
            path=path,
        )

    @contextmanager
    def read(self) -> Iterator[Store]:
        """One consistent view; it never waits for a writer and cannot write. Raises StorageUnavailable."""
        with translated(), self._reader.connect() as connection:
            yield Store.on(connection)

    @contextmanager
    def write(self) -> Iterator[Store]:
        """One transaction of the only writer: all of it or nothing.

        Raises StorageUnavailable (another writer holds on for 10 s), Conflict (a row that the database refuses) and
        InvalidInput (a value no column can hold).
        """
        with translated(), self._writer.begin() as connection:
            yield Store.on(connection)

    def upgrade(self) -> None:
        """Bring the tables to this version. Raises StorageUnavailable when the database is ahead of it."""
        with translated(), self._writer.begin() as connection:
            migrate.upgrade(connection)

    def revision(self) -> str | None:
        """The schema revision found, None for a database without our tables."""
        with translated(), self._reader.connect() as connection:
            return migrate.current(connection)

    def is_current(self) -> bool:
        """Whether the tables are this version's. Raises StorageUnavailable when the database does not answer."""
        return self.revision() == migrate.head()

    def changed_since(self, token: int) -> int:
        """A token that equals the given one as long as nobody, in any process, has committed a change.

        Costs microseconds on SQLite, so a poller can ask often; on PostgreSQL it follows events only. Start with 0.
        """
        if self._path is None:
            with self.read() as store:
                return max(token, store.events.last_id())
        with self._watch_lock:
            if self._watch is None:
                # data_version counts the commits of *other* connections: this one does nothing else.
                self._watch = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
            try:
                version: int = self._watch.execute("PRAGMA data_version").fetchone()[0]
            except sqlite3.Error as error:
                raise StorageUnavailable(f"{self._path} cannot be read: {error}") from error
            return version

    def close(self) -> None:
        """Close all connections that are not inside a block."""
        with self._watch_lock:
            if self._watch is not None:
                self._watch.close()
                self._watch = None
        self._reader.dispose()
        self._writer.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise StorageUnavailable(
            "the database URL cannot be read; write sqlite:////absolute/path/autotuner.db or"
            f" {POSTGRESQL_DRIVER}://user:password@host/name"
        ) from error
    if parsed.drivername in (*SQLITE_DRIVERS, POSTGRESQL_DRIVER):
        return parsed
    hint = f"{POSTGRESQL_DRIVER}://..." if parsed.drivername.startswith("postgres") else "sqlite:////path/autotuner.db"
    raise StorageUnavailable(
        f"the database driver {parsed.drivername} is not supported (sqlite and {POSTGRESQL_DRIVER} are); write {hint}"
    )
