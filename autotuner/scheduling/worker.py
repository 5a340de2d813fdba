"""The worker's outer loop: clean up what an earlier life left, claim a job, drive it, claim the next.

Several workers may run; a lease with a fencing number makes sure that only one of them writes for a job.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from autotuner.domain.errors import AutotunerError, StorageUnavailable
from autotuner.domain.machine import Machine
from autotuner.execution.base import Executor
from autotuner.handoff.support import capabilities_of
from autotuner.scheduling.finisher import Finisher
from autotuner.scheduling.launcher import TrialLauncher
from autotuner.scheduling.lease import LeaseKeeper
from autotuner.scheduling.periodic import Periodic
from autotuner.scheduling.tick import JobDriver
from autotuner.search.proposer import Proposer
from autotuner.search.ranking import CandidateSet
from autotuner.storage.database import Database
from autotuner.storage.jobs import Claim, LeaseLost

_log = logging.getLogger(__name__)

# Claiming writes, and an idle worker need not wake a laptop's disk five times a second.
_IDLE_SECONDS = 0.5
_BEAT_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerParts:
    """What a worker is made of; everything that tests replace is here."""

    worker_id: str
    database: Database
    executor: Executor
    machine: Machine
    clock: Callable[[], datetime]
    new_id: Callable[[], str]
    lease_seconds: float
    tick_seconds: float
    trainer_module: str
    version: str


class Worker:
    """Runs jobs until `stop` is set."""

    def __init__(self, parts: WorkerParts, *, stop: threading.Event) -> None:
        self._parts = parts
        self._stop = stop

    def run(self) -> None:
        """Loop until stopped. What runs then is ended and its trial put back."""
        self._clean_up()
        self._beat()
        with Periodic(self._beat, interval_seconds=_BEAT_SECONDS, name="heartbeat"):
            while not self._stop.is_set():
                claim = self._claim()
                if claim is None:
                    self._stop.wait(_IDLE_SECONDS)
                    continue
                self.drive(claim)

    def drive(self, claim: Claim) -> None:
        """Drive one claimed job until it is finished, paused, lost, or the worker stops."""
        parts = self._parts
        with LeaseKeeper(claim, database=parts.database, clock=parts.clock, lease_seconds=parts.lease_seconds) as lease:
            try:
                driver = self._driver(claim)
                while not self._stop.is_set() and not lease.lost.is_set():
                    if driver.tick():
                        break
                    self._stop.wait(parts.tick_seconds)
                else:
                    if not lease.lost.is_set():
                        driver.park()
            except LeaseLost:
                _log.warning("job %s is another worker's now", claim.job_id)
                return
            except StorageUnavailable as error:
                # No fault of the job's: its lease runs out and it is claimed again when the database answers.
                _log.warning("job %s is left alone for now: %s", claim.job_id, error)
                return
            except Exception as error:  # noqa: BLE001 - a job must end with a reason, not take the worker down
                _log.exception("job %s ended by an error", claim.job_id)
                self._give_up(claim, error)
        if not lease.lost.is_set():
            with parts.database.write() as store:
                store.jobs.release(claim)

    def _driver(self, claim: Claim) -> JobDriver:
        parts = self._parts
        with parts.database.read() as store:
            spec = store.jobs.get(claim.job_id).spec
        candidates = CandidateSet.build(spec, capabilities=capabilities_of(spec.framework))
        return JobDriver(
            claim,
            database=parts.database,
            executor=parts.executor,
            proposer=Proposer(spec, candidates=candidates),
            launcher=TrialLauncher(
                database=parts.database,
                executor=parts.executor,
                clock=parts.clock,
                cores=parts.machine.cores,
                trainer_module=parts.trainer_module,
            ),
            clock=parts.clock,
            new_id=parts.new_id,
        )

    def _give_up(self, claim: Claim, error: Exception) -> None:
        parts = self._parts
        try:
            with parts.database.read() as store:
                job, active = store.jobs.get(claim.job_id), store.runs.active(claim.job_id)
            for run in active:
                parts.executor.cancel(run.name)
            text = str(error) if isinstance(error, AutotunerError) else f"{type(error).__name__}: {error}"
            Finisher(database=parts.database, clock=parts.clock).fail(job, claim, error=text)
        except AutotunerError:
            _log.exception("job %s could not be marked as failed", claim.job_id)

    def _clean_up(self) -> None:
        """Runs of an earlier life are adopted when their job is claimed; processes of no known run are killed."""
        with self._parts.database.read() as store:
            known = store.runs.active_names()
        killed = self._parts.executor.kill_strays(known)
        if killed:
            _log.warning("killed %d processes left over from earlier runs", killed)

    def _claim(self) -> Claim | None:
        parts = self._parts
        try:
            with parts.database.write() as store:
                return store.jobs.claim(parts.worker_id, now=parts.clock(), lease_seconds=parts.lease_seconds)
        except StorageUnavailable as error:
            _log.warning("no job can be claimed for now: %s", error)
            return None

    def _beat(self) -> bool:
        parts = self._parts
        try:
            with parts.database.write() as store:
                store.workers.beat(
                    parts.worker_id,
                    host=parts.machine.hostname,
                    version=parts.version,
                    devices=parts.machine.max_local_ranks,
                    now=parts.clock(),
                )
        except AutotunerError as error:
            _log.warning("could not say that this worker is alive: %s", error)
        return True
