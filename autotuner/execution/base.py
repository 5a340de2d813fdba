"""What every executor does, whatever machine or scheduler it uses.

Rules:

* A run is known by its name, which the caller chose before submitting; everything about it can be asked for by name,
  by another process, after a restart.
* `submit` is idempotent: a name that is known is not started again, and that is no error.
* `poll` answers for all names in one call, with one entry for each, and starts, ends or waits for nothing.  A name that
  was never submitted is `unknown`; an ended run keeps its outcome until it is released.
* Every run ends: by itself, by one of its deadlines, or by `cancel`.  When its status is `ended`, no process of it is
  left, daemonised ones included.
* `cancel` asks and returns; an unknown or ended run is no error.
* Nothing of the caller's environment reaches a run but an allow-list; no order carries a command of a job's own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from autotuner.domain.errors import InvalidInput
from autotuner.domain.outcome import RunStatus
from autotuner.launch.plan import LaunchPlan

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOrder:
    """One run to be done: the launch, the request its ranks read, and when to give up on it.

    `startup_seconds` runs until the first step, `no_progress_seconds` between two, `hard_seconds` over all.
    """

    name: str
    run_dir: Path
    plan: LaunchPlan
    request_text: str
    hard_seconds: float
    startup_seconds: float
    no_progress_seconds: float


class Executor(Protocol):
    """Runs orders; see the rules at the top of this file."""

    def run_dir(self, name: str) -> Path:
        """Where the files of a run are or will be. Raises InvalidInput for a name that cannot be one."""
        ...

    def submit(self, order: RunOrder) -> None:
        """Start the run unless its name is known. Raises LaunchRefused, InvalidInput; then nothing runs."""
        ...

    def poll(self, names: Sequence[str]) -> Mapping[str, RunStatus]:
        """The status of each run."""
        ...

    def cancel(self, name: str) -> None:
        """Ask for the end of a run."""
        ...

    def wait_ended(self, names: Sequence[str], *, timeout_seconds: float) -> tuple[str, ...]:
        """Wait until none of them runs. The names that still do when the time is up."""
        ...

    def release(self, name: str) -> None:
        """The result was collected: shrink what is kept of the run. Raises Conflict while it runs."""
        ...

    def kill_strays(self, known: Collection[str]) -> int:
        """Kill every process of a run that is not in `known`, and say how many there were."""
        ...


def checked_name(name: str) -> str:
    """The name, fit to be a folder's. Raises InvalidInput."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{name!r} cannot be a run's name; use up to 128 letters, digits, dots, dashes and underscores",
            field="name",
        )
    return name
