"""How a run's processes ended, as its supervisor saw it; what that means for the trial is decided elsewhere."""

from __future__ import annotations

from typing import Annotated, Literal

from autotuner.domain.base import Lax, Value

EndReason = Literal[
    "exited",  # by itself, with exit_code or signal
    "hard_deadline",
    "startup_deadline",
    "no_progress",
    "cancelled",
    "supervisor_died",  # the runner is gone without a word: nobody knows how the run ended
    "not_started",  # the launch command itself could not be executed
]
RunPhase = Literal["unknown", "starting", "running", "ended"]


class RankExit(Value):
    """The exit of one rank; `signal` is set when one ended it."""

    rank: int
    exit_code: int | None
    signal: int | None


class RunOutcome(Value):
    """The end of a run. `oom_kills`: processes that the kernel killed on this machine meanwhile for lack of memory."""

    reason: EndReason
    message: str = ""
    exit_code: int | None = None
    signal: int | None = None
    rank_exits: Annotated[tuple[RankExit, ...], Lax] = ()
    seconds: float = 0.0
    oom_kills: int = 0


class RunStatus(Value):
    """What an executor knows of a run right now. `unknown`: it never heard of it. `outcome` is set once it ended."""

    name: str
    phase: RunPhase
    outcome: RunOutcome | None = None
