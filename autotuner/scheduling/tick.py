"""One claimed job, tick by tick: collect, decide, propose, launch.

All state is in the database; what is kept in memory (the candidate list, the proposer) can be rebuilt from the job.
One trial runs at a time, because trials on one machine disturb each other's times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from autotuner.domain.job import Job, JobState
from autotuner.domain.lifecycle import JOB_FINISHED, JOB_NEXT, RUN_ACTIVE
from autotuner.domain.trial import Run, Trial
from autotuner.execution.base import Executor
from autotuner.scheduling.collector import Collector
from autotuner.scheduling.finisher import Finisher, next_to_confirm
from autotuner.scheduling.launcher import TrialLauncher
from autotuner.search.proposals import Exhausted
from autotuner.search.proposer import Proposer
from autotuner.search.stopping import should_stop
from autotuner.storage.database import Database
from autotuner.storage.jobs import Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What the database says about the job at one moment."""

    job: Job
    trials: Sequence[Trial]
    runs: Sequence[Run]

    @property
    def active(self) -> list[Run]:
        """Runs that may still have processes."""
        return [run for run in self.runs if run.state in RUN_ACTIVE]

    @property
    def confirming(self) -> list[Run]:
        """Runs that re-measure a leader."""
        return [run for run in self.runs if run.purpose == "confirm"]


class JobDriver:
    """Drives one claimed job until it needs nothing more from this worker."""

    def __init__(
        self,
        claim: Claim,
        *,
        database: Database,
        executor: Executor,
        proposer: Proposer,
        launcher: TrialLauncher,
        clock: Callable[[], datetime],
        new_id: Callable[[], str],
    ) -> None:
        self._claim = claim
        self._database = database
        self._executor = executor
        self._proposer = proposer
        self._launcher = launcher
        self._clock = clock
        self._new_id = new_id
        self._collector = Collector(database=database, executor=executor, clock=clock)
        self._finisher = Finisher(database=database, clock=clock)

    def tick(self) -> bool:
        """One round; True when the job is finished or paused. Raises LeaseLost."""
        self._collector.collect(self._snapshot().job, self._claim)
        now = self._snapshot()
        if now.job.state in JOB_FINISHED or now.job.state == "paused":
            return True
        if now.job.desired_state == "cancel":
            return self._cancel(now)
        if now.active:
            return False
        if now.job.desired_state == "pause":
            self._set_state("paused")
            return True
        if now.job.state == "queued":
            self._set_state("running")
        queued = next((trial for trial in now.trials if trial.state == "queued"), None)
        if queued is not None:
            self._launcher.launch(now.job, self._claim, queued, purpose="measure")
            return False
        return self._decide(now)

    def park(self) -> None:
        """The worker is asked to stop: end the runs and put their trials back, to be run again later."""
        names = [run.name for run in self._snapshot().active]
        for name in names:
            self._executor.cancel(name)
        self._executor.wait_ended(names, timeout_seconds=30.0)
        self._collector.collect(self._snapshot().job, self._claim)

    def _decide(self, now: Snapshot) -> bool:
        reason = self._stopping_because(now)
        if reason is None:
            proposal = self._proposer.propose(now.trials)
            if not isinstance(proposal, Exhausted):
                with self._database.write() as store:
                    store.jobs.check_fence(self._claim)
                    trial = store.trials.create(
                        trial_id=self._new_id(),
                        job_id=now.job.id,
                        config=proposal.config,
                        source=proposal.source,
                        reason=proposal.reason,
                        estimate=proposal.estimate,
                        now=self._clock(),
                    )
                self._launcher.launch(now.job, self._claim, trial, purpose="measure")
                return False
            reason = proposal.reason
        return self._finish(now, reason)

    def _finish(self, now: Snapshot, reason: str) -> bool:
        leader = next_to_confirm(now.job, now.trials, now.confirming)
        if leader is None:
            self._finisher.complete(now.job, self._claim, now.trials, reason=reason)
            return True
        if not now.confirming:
            # From here on the job only confirms; the reason is written down so that a restart keeps it.
            with self._database.write() as store:
                store.jobs.check_fence(self._claim)
                data = {"stopping_because": reason}
                store.events.append(now.job.id, "job.note", trial_id=None, data=data, now=self._clock())
        self._launcher.launch(now.job, self._claim, leader, purpose="confirm")
        return False

    def _stopping_because(self, now: Snapshot) -> str | None:
        if now.confirming:
            with self._database.read() as store:
                notes = store.events.of_kind(now.job.id, "job.note")
            told = [event.data["stopping_because"] for event in notes if "stopping_because" in event.data]
            return str(told[-1]) if told else "the leaders were measured again"
        world_size = now.job.spec.cluster.world_size
        busy_seconds = sum((run.finished_at - run.created_at).total_seconds() for run in now.runs if run.finished_at)
        started_at = now.job.started_at or now.job.created_at
        stop = should_stop(
            now.job.spec,
            now.trials,
            candidates_left=self._proposer.remaining(now.trials),
            elapsed_seconds=(self._clock() - started_at).total_seconds(),
            device_seconds=busy_seconds * world_size,
        )
        return None if stop is None else stop.sentence

    def _cancel(self, now: Snapshot) -> bool:
        if now.job.state != "cancelling":
            self._set_state("cancelling")
        if now.active:
            for run in now.active:
                self._executor.cancel(run.name)
            return False
        with self._database.write() as store:
            store.jobs.check_fence(self._claim)
            for trial in now.trials:
                if trial.state == "queued":
                    store.trials.cancelled(trial.id, now=self._clock())
            store.jobs.set_state(now.job.id, "cancelled", now=self._clock(), stopped_because="cancelled by the user")
        return True

    def _set_state(self, state: JobState) -> None:
        with self._database.write() as store:
            store.jobs.check_fence(self._claim)
            # A cancel or pause may have come in between; then the next tick sees it.
            if state in JOB_NEXT[store.jobs.get(self._claim.job_id).state]:
                store.jobs.set_state(self._claim.job_id, state, now=self._clock())

    def _snapshot(self) -> Snapshot:
        with self._database.read() as store:
            return Snapshot(
                job=store.jobs.get(self._claim.job_id),
                trials=store.trials.list(self._claim.job_id),
                runs=store.runs.of_job(self._claim.job_id),
            )
