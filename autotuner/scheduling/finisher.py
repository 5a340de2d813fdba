"""Ends a job: re-measures the leaders, interleaved, then names the winner or says why there is none.

One short profile is not good to a few percent, so the leaders run again in turn (A, B, A, B) and their samples are
pooled: what disturbs the machine for a minute then disturbs both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime

from autotuner.domain.job import Job
from autotuner.domain.trial import Run, Trial
from autotuner.search.stopping import leaders
from autotuner.storage.database import Database
from autotuner.storage.jobs import Claim

_MAX_ROUNDS = 3


def next_to_confirm(job: Job, trials: Sequence[Trial], confirm_runs: Sequence[Run]) -> Trial | None:
    """The leader to run again, or None when enough was confirmed. A confirmation that failed counts as one.

    Pooling may put another trial in front, which is then a leader too: no winner is named on the luck of one run.  The
    number of confirmations stays limited where the leaders keep changing places.
    """
    plan = job.spec.measure
    if len(confirm_runs) >= plan.confirm_runs * plan.confirm_leaders * _MAX_ROUNDS:
        return None
    done = Counter(run.trial_id for run in confirm_runs)
    ranked = leaders(trials, count=plan.confirm_leaders, objective=job.spec.objective)
    open_leaders = [trial for trial in ranked if done[trial.id] < plan.confirm_runs]
    # min keeps the ranking among equals, so the leaders take turns.
    return min(open_leaders, key=lambda trial: done[trial.id], default=None)


class Finisher:
    """Writes the end of a job."""

    def __init__(self, *, database: Database, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._clock = clock

    def complete(self, job: Job, claim: Claim, trials: Sequence[Trial], *, reason: str) -> None:
        """Completed with the reason, or failed when nothing could be measured. Raises LeaseLost."""
        measured = any(trial.state == "succeeded" for trial in trials)
        with self._database.write() as store:
            store.jobs.check_fence(claim)
            if measured:
                store.jobs.set_state(job.id, "completed", now=self._clock(), stopped_because=reason)
            else:
                store.jobs.set_state(
                    job.id, "failed", now=self._clock(), stopped_because=reason, error=_nothing_measured(trials)
                )

    def fail(self, job: Job, claim: Claim, *, error: str) -> None:
        """Failed for a reason that is no trial's. Raises LeaseLost."""
        with self._database.write() as store:
            store.jobs.check_fence(claim)
            store.jobs.set_state(job.id, "failed", now=self._clock(), stopped_because="an error", error=error)


def _nothing_measured(trials: Sequence[Trial]) -> str:
    kinds = Counter(trial.failure.kind for trial in trials if trial.failure is not None)
    told = ", ".join(f"{count} x {kind}" for kind, count in kinds.most_common())
    example = next((trial.failure for trial in trials if trial.failure is not None), None)
    first = f"; the first said: {example.message}" if example is not None else ""
    return f"no layout could be measured in {len(trials)} trials ({told or 'none was started'}){first}"
