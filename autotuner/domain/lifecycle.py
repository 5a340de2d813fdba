"""Which states may follow which; nothing else in the program assigns a state.

A re-measurement or a retry is a new *run* of the same trial, so a succeeded trial never runs again as a trial.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from autotuner.domain.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from autotuner.domain.job import JobState
    from autotuner.domain.trial import RunState, TrialState

S = TypeVar("S", bound=str)

JOB_NEXT: Final[Mapping[JobState, frozenset[JobState]]] = {
    "queued": frozenset({"running", "paused", "cancelling", "cancelled", "failed"}),
    "running": frozenset({"paused", "cancelling", "completed", "failed"}),
    "paused": frozenset({"queued", "running", "cancelling", "cancelled"}),
    "cancelling": frozenset({"cancelled"}),
    "cancelled": frozenset(),
    "completed": frozenset({"queued"}),  # its budget was extended
    "failed": frozenset(),
}

TRIAL_NEXT: Final[Mapping[TrialState, frozenset[TrialState]]] = {
    "queued": frozenset({"launching", "cancelled"}),
    # Back to queued only when a run was lost and attempts are left.
    "launching": frozenset({"running", "succeeded", "failed", "cancelled", "queued"}),
    "running": frozenset({"succeeded", "failed", "cancelled", "queued"}),
    "succeeded": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
}

RUN_NEXT: Final[Mapping[RunState, frozenset[RunState]]] = {
    "launching": frozenset({"running", "succeeded", "failed", "cancelled", "lost"}),
    "running": frozenset({"succeeded", "failed", "cancelled", "lost"}),
    "succeeded": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
    "lost": frozenset(),
}

JOB_FINISHED: Final[frozenset[JobState]] = frozenset({"completed", "failed", "cancelled"})
TRIAL_FINISHED: Final[frozenset[TrialState]] = frozenset({"succeeded", "failed", "cancelled"})
RUN_ACTIVE: Final[frozenset[RunState]] = frozenset({"launching", "running"})


def _advance(what: str, table: Mapping[S, frozenset[S]], current: S, new: S) -> S:
    if new not in table[current]:
        legal = ", ".join(sorted(table[current])) or "nothing: it is final"
        raise Conflict(f"a {what} cannot go from {current} to {new}; from {current} it can go to {legal}")
    return new


def advance_job(current: JobState, new: JobState) -> JobState:
    """The new state. Raises Conflict when it may not follow."""
    return _advance("job", JOB_NEXT, current, new)


def advance_trial(current: TrialState, new: TrialState) -> TrialState:
    """The new state. Raises Conflict when it may not follow."""
    return _advance("trial", TRIAL_NEXT, current, new)


def advance_run(current: RunState, new: RunState) -> RunState:
    """The new state. Raises Conflict when it may not follow."""
    return _advance("run", RUN_NEXT, current, new)
