"""Translates what the database libraries raise into refusals that a user can act on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import IntegrityError, InterfaceError, OperationalError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from autotuner.domain.errors import Conflict, InvalidInput, StorageUnavailable

BUSY_TIMEOUT_SECONDS = 10.0
"""How long a writer waits for another one before it gives up."""


@contextmanager
def translated() -> Iterator[None]:
    """Turn library errors into Conflict, InvalidInput or StorageUnavailable; let bugs of ours through as they are."""
    try:
        yield
    except IntegrityError as error:
        raise Conflict(f"the database refuses this row: {error.orig}") from error
    except (OperationalError, InterfaceError) as error:
        raise StorageUnavailable(_advice(str(error.orig))) from error
    except PoolTimeout as error:
        raise StorageUnavailable(f"all database connections are in use: {error}; try again") from error
    except StatementError as error:
        # A value that a column type refused before anything was sent: a time without a zone, NaN in JSON.
        if isinstance(error.orig, ValueError | TypeError):
            raise InvalidInput(f"cannot be stored: {error.orig}") from error
        raise


def _advice(text: str) -> str:
    if "locked" in text or "lock timeout" in text:
        return (
            f"another process has been writing to the database for more than {BUSY_TIMEOUT_SECONDS:.0f} s ({text});"
            " try again, and look for a process that hangs"
        )
    if "no such table" in text:
        return f"the database has no tables of this version ({text}); run `autotuner db upgrade`"
    return f"the database does not answer: {text.strip()}"
