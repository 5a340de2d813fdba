"""SQLite: where the file may lie, and the settings without which updates are silently lost.

Measured with four threads that each do 30 read-modify-write transactions on one row: the driver's defaults keep 30 of
120 updates, a plain BEGIN fails with "database is locked" at once (the busy timeout does not cover a reader that
turns writer), WAL with BEGIN IMMEDIATE keeps 120 of 120.  So every write begins as a writer, and readers never wait.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import URL, Connection, Engine, create_engine, event

from autotuner.domain.errors import StorageUnavailable
from autotuner.storage.errors import BUSY_TIMEOUT_SECONDS
from autotuner.storage.types import json_text

Begin = Literal["BEGIN", "BEGIN IMMEDIATE"]

MIN_VERSION = (3, 35, 0)
# File locks and shared memory of WAL do not work across machines; these are where a file gets damaged.
NETWORK_FILE_SYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ncpfs", "fuse.sshfs"})
_MOUNTS = Path("/proc/self/mounts")


def database_path(url: URL) -> Path:
    """The file of an SQLite URL. Raises StorageUnavailable for a database in memory or a `file:` URI."""
    name = url.database or ""
    if name in ("", ":memory:") or name.startswith("file:"):
        raise StorageUnavailable(
            f"{url.render_as_string()}: threads and processes share the database, so it must be a file;"
            " use sqlite:////absolute/path/autotuner.db"
        )
    return Path(name).absolute()


def prepare_file(path: Path, *, mounts: str) -> None:
    """Make the folder, refuse places where a database cannot live, and switch the file to WAL.

    `mounts` is the text of /proc/self/mounts. Raises StorageUnavailable.
    """
    if sqlite3.sqlite_version_info < MIN_VERSION:
        raise StorageUnavailable(f"SQLite {sqlite3.sqlite_version} is too old; 3.35 or newer is needed")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StorageUnavailable(f"the folder {path.parent} cannot be made: {error.strerror}; {_OTHER}") from error
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise StorageUnavailable(f"the folder {path.parent} is not writable; {_OTHER}")
    if path.exists() and not (path.is_file() and os.access(path, os.R_OK | os.W_OK)):
        raise StorageUnavailable(f"{path} is not a file that can be read and written; {_OTHER}")
    kind = file_system(path.parent.resolve(), mounts=mounts)
    if kind in NETWORK_FILE_SYSTEMS:
        raise StorageUnavailable(
            f"{path} lies on {kind}, where SQLite files get damaged; {_OTHER} on a local disk, or use PostgreSQL"
        )
    _switch_to_wal(path)


_OTHER = "set AUTOTUNER_DATA_DIR or AUTOTUNER_DATABASE_URL to another place"


def read_mounts() -> str:
    """The mounted file systems, empty where the system does not tell."""
    try:
        return _MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def file_system(folder: Path, *, mounts: str) -> str:
    """The type of the file system that holds `folder`, empty if unknown: that of the longest mount point above it."""
    best, kind = -1, ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = Path(fields[1].replace("\\040", " "))
        # Of two mounts on one point the later one is seen.
        if folder.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), fields[2]
    return kind


def _switch_to_wal(path: Path) -> None:
    """WAL is a property of the file: set once. Processes that start together may collide, so this tries again."""
    deadline = time.monotonic() + BUSY_TIMEOUT_SECONDS
    while True:
        try:
            with closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_SECONDS)) as connection:
                mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        except sqlite3.DatabaseError as error:
            if "locked" in str(error) and time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            raise StorageUnavailable(f"{path} cannot be opened: {error}; {_OTHER}") from error
        if mode != "wal":
            raise StorageUnavailable(f"{path} lies on a file system without WAL (journal mode {mode}); {_OTHER}")
        return


def make_engine(path: Path, *, begin: Begin) -> Engine:
    """Connections that begin each transaction with `begin`; those with a plain BEGIN can only read."""
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        pool_size=10,
        max_overflow=30,
        pool_timeout=BUSY_TIMEOUT_SECONDS,
        json_serializer=json_text,
        connect_args={"timeout": BUSY_TIMEOUT_SECONDS},
    )

    @event.listens_for(engine, "connect")
    def _configure(dbapi_connection: Any, _record: Any) -> None:
        # The driver would otherwise begin transactions on its own, and only before a write.
        dbapi_connection.isolation_level = None
        for pragma in ("foreign_keys=ON", "synchronous=NORMAL", f"busy_timeout={BUSY_TIMEOUT_SECONDS * 1000:.0f}"):
            dbapi_connection.execute(f"PRAGMA {pragma}")
        if begin == "BEGIN":
            dbapi_connection.execute("PRAGMA query_only=ON")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine
