"""When a run has to be ended: start-up, no progress, over all.

Decides from a clock and the progress file only; ending it is the supervisor's business.  Standard library only.
"""

from __future__ import annotations

from pathlib import Path

from autotuner.execution.rundir import Instructions
from autotuner.handoff.tail import steps_done


class Watch:
    """Watches one run from `now` on; times are seconds of any steady clock."""

    def __init__(self, instructions: Instructions, *, progress: Path, now: float) -> None:
        self._instructions = instructions
        self._progress = progress
        self._started = now
        self._grew = now
        self._size = -1
        self._steps = 0

    @property
    def steps(self) -> int:
        """Steps done at the last look."""
        return self._steps

    def broken_deadline(self, now: float) -> tuple[str, str] | None:
        """The reason and a sentence once a deadline has passed, else None."""
        self._look(now)
        limits = self._instructions
        if now - self._started > limits.hard_seconds:
            return "hard_deadline", f"the run took longer than {limits.hard_seconds:g} s; {self._steps} steps were done"
        if self._steps == 0 and now - self._started > limits.startup_seconds:
            return "startup_deadline", f"no step was done within {limits.startup_seconds:g} s of the start"
        if self._steps > 0 and now - self._grew > limits.no_progress_seconds:
            return "no_progress", f"no step was done for {limits.no_progress_seconds:g} s after step {self._steps}"
        return None

    def _look(self, now: float) -> None:
        try:
            size = self._progress.stat().st_size
        except OSError:
            return
        if size == self._size:
            return
        self._size, self._grew = size, now
        self._steps = max(self._steps, steps_done(self._progress))
