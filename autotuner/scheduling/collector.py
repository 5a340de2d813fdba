"""First step of a tick: asks the executor about all active runs at once and turns ended ones into results.

Decides what a result does to its trial.  A run that was *lost* (nobody knows how it ended) puts the trial back, a
limited number of times; everything else ends it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime

from autotuner.domain.job import Job
from autotuner.domain.measurement import Failure, Measurement
from autotuner.domain.outcome import RunOutcome, RunStatus
from autotuner.domain.trial import Run, RunState, Trial
from autotuner.execution.base import Executor
from autotuner.handoff.progress import read_progress
from autotuner.handoff.report import pool, read_result
from autotuner.search.stopping import best_trial
from autotuner.storage.database import Database
from autotuner.storage.jobs import Claim
from autotuner.storage.store import Store

_log = logging.getLogger(__name__)

MAX_LOST_RUNS = 3


class Collector:
    """Collects for one claimed job."""

    def __init__(self, *, database: Database, executor: Executor, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._executor = executor
        self._clock = clock
        self._shown_steps: dict[str, int] = {}

    def collect(self, job: Job, claim: Claim) -> None:
        """Poll all active runs in one call and write down what ended. Raises LeaseLost."""
        with self._database.read() as store:
            runs = store.runs.active(job.id)
            trials = {trial.id: trial for trial in store.trials.list(job.id)} if runs else {}
        if not runs:
            return
        statuses = self._executor.poll([run.name for run in runs])
        for run in runs:
            self._one(job, claim, run, trials[run.trial_id], statuses)

    def _one(self, job: Job, claim: Claim, run: Run, trial: Trial, statuses: Mapping[str, RunStatus]) -> None:
        status = statuses.get(run.name)
        if status is not None and status.phase in ("starting", "running"):
            self._progress(claim, run, trial)
            return
        if status is None or status.outcome is None:
            # The row says "launching" before the submit, so a crash in between leaves a run nobody started.
            outcome = RunOutcome(reason="supervisor_died", message="the executor does not know this run")
        else:
            outcome = status.outcome
        run_dir = self._executor.run_dir(run.name)
        result = read_result(run_dir, outcome, job=job.spec, config=trial.config, run_name=run.name)
        with self._database.write() as store:
            store.jobs.check_fence(claim)
            self._write(store, job, run, trial, result)
        self._shown_steps.pop(run.name, None)
        self._executor.release(run.name)

    def _write(self, store: Store, job: Job, run: Run, trial: Trial, result: Measurement | Failure) -> None:
        now = self._clock()
        if isinstance(result, Measurement):
            store.runs.set_state(run.name, "succeeded", now=now, measurement=result)
            before = best_trial(store.trials.list(job.id), objective=job.spec.objective)
            if run.purpose == "confirm":
                store.trials.pooled(trial.id, pool(store.runs.measurements(trial.id), job=job.spec), now=now)
            else:
                store.trials.succeeded(trial.id, result, now=now)
            self._announce_best(store, job, before)
            return
        store.runs.set_state(run.name, _run_state(result), now=now, measurement=None)
        if run.purpose == "confirm":
            data = {"number": trial.number, "confirm_failed": result.kind, "message": result.message}
            store.events.append(job.id, "job.note", trial_id=trial.id, data=data, now=now)
            return
        self._write_failure(store, job, trial, result, now=now)

    def _write_failure(self, store: Store, job: Job, trial: Trial, failure: Failure, *, now: datetime) -> None:
        if failure.kind == "cancelled" and job.desired_state == "cancel":
            store.trials.cancelled(trial.id, now=now)
            return
        if failure.kind in ("lost", "cancelled"):
            lost = sum(run.state in ("lost", "cancelled") for run in store.runs.of_trial(trial.id))
            if lost < MAX_LOST_RUNS:
                _log.warning("trial %s: run lost (%s), it is put back", trial.id, failure.message)
                store.trials.requeue(trial.id, now=now)
                return
            failure = failure.model_copy(update={"kind": "lost", "message": f"{failure.message} ({lost} times)"})
        store.trials.failed(trial.id, failure, now=now)

    def _announce_best(self, store: Store, job: Job, before: Trial | None) -> None:
        best = best_trial(store.trials.list(job.id), objective=job.spec.objective)
        if best is None or best.measurement is None or (before is not None and before.id == best.id):
            return
        data = {
            "number": best.number,
            "key": best.config.key(),
            "tokens_per_second": best.measurement.tokens_per_second,
        }
        store.events.append(job.id, "job.best", trial_id=best.id, data=data, now=self._clock())

    def _progress(self, claim: Claim, run: Run, trial: Trial) -> None:
        progress = read_progress(self._executor.run_dir(run.name))
        started = progress is not None and run.state == "launching"
        if progress is None or (not started and self._shown_steps.get(run.name) == progress.step):
            return
        self._shown_steps[run.name] = progress.step
        with self._database.write() as store:
            store.jobs.check_fence(claim)
            now = self._clock()
            if started:
                store.runs.set_state(run.name, "running", now=now, measurement=None)
                if trial.state == "launching":
                    store.trials.running(trial.id, now=now)
            data = {"number": trial.number, "purpose": run.purpose, **progress.as_json()}
            store.events.append(trial.job_id, "trial.progress", trial_id=trial.id, data=data, now=now)


def _run_state(failure: Failure) -> RunState:
    if failure.kind == "lost":
        return "lost"
    return "cancelled" if failure.kind == "cancelled" else "failed"
