"""Brings a database to the schema of this code, and refuses one that is ahead of it.

What the steps do is in `migrations/versions`.  Each upgrade is one write transaction: processes that start together
wait for the first one and then find nothing to do.
"""

from __future__ import annotations

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine

from autotuner.domain.errors import StorageUnavailable

VERSION_TABLE = "autotuner_alembic_version"
"""Not `alembic_version`: that one is Optuna's where both share a database."""


def alembic_config(connectable: Engine | Connection) -> Config:
    """Alembic's settings without an ini file; `migrations/env.py` takes the connection from `attributes`."""
    config = Config()
    config.set_main_option("script_location", "autotuner.storage:migrations")
    config.attributes["connection"] = connectable
    return config


def head() -> str:
    """The revision that this code works with."""
    revision = _scripts().get_current_head()
    if revision is None:
        raise StorageUnavailable("this installation has no migrations; install autotuner again")
    return revision


def current(connection: Connection) -> str | None:
    """The revision of a database, None for an empty one."""
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    return context.get_current_revision()


def upgrade(connection: Connection) -> None:
    """Apply what is missing, inside the caller's transaction. Raises StorageUnavailable if the database is newer."""
    found = current(connection)
    known = {script.revision for script in _scripts().walk_revisions()}
    if found is not None and found not in known:
        raise StorageUnavailable(
            f"the database has schema {found} and this version of autotuner knows up to {head()}:"
            " a newer version has upgraded it; install that version or use another database"
        )
    if found != head():
        command.upgrade(alembic_config(connection), "head")


def _scripts() -> ScriptDirectory:
    config = Config()
    config.set_main_option("script_location", "autotuner.storage:migrations")
    return ScriptDirectory.from_config(config)
