"""Refusals to the caller: typed errors with a stable code and no notion of HTTP.

What a *layout* cannot do is a `Rejection` value and what a *trial* did wrong is a `Failure` value; neither is here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from autotuner.domain.rejection import Rejection


class AutotunerError(Exception):
    """Base of all refusals. `str(error)` is one sentence that a user can act on."""

    code: ClassVar[str] = "error"


class InvalidInput(AutotunerError):
    """Something the user wrote cannot be meant. `field` is the dotted path of the offending value."""

    code = "invalid-input"

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class UnknownPreset(InvalidInput):
    """A preset name that does not exist; the message lists the nearest ones."""

    code = "unknown-preset"


class NoFeasibleLayout(AutotunerError):
    """Every layout of the search space is rejected: carries the histogram and one example of each rule."""

    code = "no-feasible-layout"

    def __init__(self, message: str, *, histogram: Mapping[str, int], examples: Sequence[Rejection]) -> None:
        super().__init__(message)
        self.histogram = dict(histogram)
        self.examples = tuple(examples)


class NotFound(AutotunerError):
    """No such job, trial or preset."""

    code = "not-found"


class Conflict(AutotunerError):
    """The object exists but its state does not allow this."""

    code = "conflict"


class NotReady(AutotunerError):
    """The answer does not exist yet (a best layout before the first measurement)."""

    code = "not-ready"


class LaunchRefused(AutotunerError):
    """A run cannot be started here (no run directory, no interpreter, too few devices)."""

    code = "launch-refused"


class StorageUnavailable(AutotunerError):
    """The database cannot be opened, is too new, or is not writable."""

    code = "storage-unavailable"
