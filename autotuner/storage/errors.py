"""Translates what the database libraries raise into refusals that a user can act on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, IntegrityError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from autotuner.domain.errors import AutotunerError, Conflict, StorageUnavailable

BUSY_TIMEOUT_SECONDS = 10.0
"""How long a writer waits for another one before it gives up."""


@contextmanager
def translated() -> Iterator[None]:
    """Turn library errors into Conflict or StorageUnavailable, and let refusals of our column types through."""
    try:
        yield
    except IntegrityError as error:
        raise Conflict(f"the database refuses this row: {error.orig}") from error
    except DBAPIError as error:
        raise StorageUnavailable(_advice(str(error.orig))) from error
    except PoolTimeout as error:
        raise StorageUnavailable(f"all database connections are in use: {error}; try again") from error
    except StatementError as error:
        # A value that one of our column types refused before anything was sent: a time without a zone, NaN in JSON.
        if isinstance(error.orig, AutotunerError):
            raise error.orig from error
        raise


def _advice(text: str) -> str:
    if "locked" in text or "lock timeout" in text:
        return (
            f"another process has been writing to the database for more than {BUSY_TIMEOUT_SECONDS:.0f} s ({text});"
            " try again, and look for a process that hangs"
        )
    if "no such table" in text or ("relation" in text and "does not exist" in text):
        return f"the database has no tables of this version ({text.strip()}); run `autotuner db upgrade`"
    return f"the database cannot do this: {text.strip()}"
