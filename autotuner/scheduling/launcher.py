"""Last step of a tick: starts one run of a trial.

The row says `launching` and carries the run's name before anything is started, so that after a crash the executor can
be asked for exactly that run: it is adopted if it lives and put back if it was never started.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime

from autotuner.domain.job import Job
from autotuner.domain.trial import RunPurpose, Trial, run_name
from autotuner.execution.base import Executor
from autotuner.execution.order import make_order
from autotuner.search.stopping import abort_above_step_seconds
from autotuner.storage.database import Database
from autotuner.storage.jobs import Claim


class TrialLauncher:
    """Launches for one worker."""

    def __init__(
        self,
        *,
        database: Database,
        executor: Executor,
        clock: Callable[[], datetime],
        cores: int,
        trainer_module: str,
    ) -> None:
        self._database = database
        self._executor = executor
        self._clock = clock
        self._cores = cores
        self._trainer_module = trainer_module

    def launch(self, job: Job, claim: Claim, trial: Trial, *, purpose: RunPurpose) -> None:
        """Write the run down, then start it. Raises LeaseLost, LaunchRefused."""
        with self._database.write() as store:
            store.jobs.check_fence(claim)
            attempt = len(store.runs.of_trial(trial.id)) + 1
            name = run_name(trial.id, attempt=attempt)
            trials = store.trials.list(job.id)
            if purpose == "measure":
                store.trials.launching(trial.id, now=self._clock())
            store.runs.create(
                name=name, trial_id=trial.id, job_id=job.id, attempt=attempt, purpose=purpose, now=self._clock()
            )
        order = make_order(
            job.spec,
            trial.config,
            name=name,
            run_dir=self._executor.run_dir(name),
            python=sys.executable,
            module=self._trainer_module,
            cores=self._cores,
            # A confirmation runs to its end: its samples are pooled with the first run's.
            abort_above_step_seconds=abort_above_step_seconds(trials) if purpose == "measure" else None,
        )
        self._executor.submit(order)
