"""Exit statuses, and how a refusal becomes one sentence on standard error.

0 ok, 1 failure, 2 wrong usage or input, 3 not found, 4 not allowed, 5 conflict, 6 server unreachable, 7 the job ended
without a result, 8 timed out, 130 interrupted.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ClassVar, ParamSpec, TypeVar

import typer

from autotuner.domain.errors import AutotunerError

P = ParamSpec("P")
R = TypeVar("R")

OK, FAILURE, USAGE, NOT_FOUND, NOT_ALLOWED, CONFLICT, UNREACHABLE, NO_RESULT, TIMED_OUT = range(9)
INTERRUPTED = 130

_STATUS_OF_CODE = {
    "invalid-input": USAGE,
    "unknown-preset": USAGE,
    "no-feasible-layout": USAGE,
    "launch-refused": USAGE,
    "not-found": NOT_FOUND,
    "not-allowed": NOT_ALLOWED,
    "conflict": CONFLICT,
    "not-ready": CONFLICT,
    "server-unreachable": UNREACHABLE,
    "no-result": NO_RESULT,
    "timed-out": TIMED_OUT,
}


class ServerUnreachable(AutotunerError):
    """Nobody answers at the service's address."""

    code: ClassVar[str] = "server-unreachable"


class NoResult(AutotunerError):
    """The job ended without a measured layout."""

    code: ClassVar[str] = "no-result"


class TimedOut(AutotunerError):
    """What was waited for did not happen in time."""

    code: ClassVar[str] = "timed-out"


class Refused(AutotunerError):
    """The service refused a request; carries the service's own stable code."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.refused_code = code


def status_of(error: AutotunerError) -> int:
    """The exit status that tells this kind of refusal to a script."""
    code = error.refused_code if isinstance(error, Refused) else error.code
    return _STATUS_OF_CODE.get(code, FAILURE)


def handled(command: Callable[P, R]) -> Callable[P, R]:
    """A command whose refusals end in one sentence and a status, and whose interruption ends in 130."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except AutotunerError as error:
            print(f"autotuner: {error}", file=sys.stderr)  # noqa: T201
            raise typer.Exit(status_of(error)) from None
        except KeyboardInterrupt:
            print("autotuner: interrupted", file=sys.stderr)  # noqa: T201
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # The reader of a pipe (`| head`) has enough; that is no failure of ours.
            sys.stderr.close()
            raise typer.Exit(OK) from None

    return run
