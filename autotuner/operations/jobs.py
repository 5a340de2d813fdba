"""What can be done with jobs: the one place between an entry point (REST, command line) and the repositories.

Each method is one use case and at most one write transaction.  Nothing here starts or stops a process: the worker
reads what is wanted from the database.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

from autotuner.costmodel.estimator import Estimator
from autotuner.costmodel.params import count_parameters
from autotuner.domain.base import Derived
from autotuner.domain.errors import Conflict, InvalidInput, LaunchRefused, NotFound
from autotuner.domain.estimate import Estimate
from autotuner.domain.job import DesiredState, Job, JobRequest, JobState, TuningJob
from autotuner.domain.lifecycle import JOB_FINISHED
from autotuner.domain.machine import Machine
from autotuner.domain.parallel import ParallelConfig
from autotuner.domain.probe import ProbeResult
from autotuner.domain.result import BestResult, EstimateReport, RankedEstimate
from autotuner.export.base import Bundle
from autotuner.export.bundled import export_bundled
from autotuner.handoff.logs import log_tail
from autotuner.handoff.support import BUNDLED, capabilities_of
from autotuner.operations.best import best_result
from autotuner.operations.resolve import resolve_job
from autotuner.search.feasibility import check
from autotuner.search.ranking import CandidateSet
from autotuner.storage.database import Database

PROBE_KEY = "probe:local"
_DEMO_SECONDS = 20.0
_MIN_DEMO_STEPS, _MAX_DEMO_STEPS = 10, 200

_UNHELD: Final[Mapping[tuple[DesiredState, JobState], JobState]] = {
    ("run", "paused"): "queued",
    ("pause", "queued"): "paused",
    ("cancel", "queued"): "cancelled",
    ("cancel", "paused"): "cancelled",
}


class Operations:
    """Use cases. Thread-safe: it holds no state of its own."""

    def __init__(
        self,
        *,
        database: Database,
        runs_root: Path,
        machine: Machine,
        clock: Callable[[], datetime],
        new_id: Callable[[], str],
    ) -> None:
        self._database = database
        self._runs_root = runs_root
        self._machine = machine
        self._clock = clock
        self._new_id = new_id

    def resolve(self, request: JobRequest) -> TuningJob:
        """The job with every value filled in. Raises InvalidInput."""
        capabilities = capabilities_of(request.framework)
        job = resolve_job(request, machine=self._machine, probe=self._probe(), capabilities=capabilities)
        if job.baseline is not None:
            rejection = check(job.baseline, job=job, capabilities=capabilities)
            if rejection is not None:
                raise InvalidInput(f"baseline: {rejection.message}; {rejection.fix}", field="baseline")
        return job

    def submit(self, request: JobRequest) -> Job:
        """Store a job for a worker to pick up. Raises InvalidInput, NoFeasibleLayout; then nothing is stored."""
        spec = self.resolve(request)
        self.require_launchable(spec)
        candidates = CandidateSet.build(spec, capabilities=capabilities_of(spec.framework))
        candidates.require_feasible()
        with self._database.write() as store:
            return store.jobs.create(
                job_id=self._new_id(),
                spec=spec,
                candidates=len(candidates.configs),
                rejections=candidates.rejections,
                now=self._clock(),
            )

    def require_launchable(self, spec: TuningJob) -> None:
        """Raises LaunchRefused when this machine cannot start the ranks that the job asks for."""
        if spec.framework != BUNDLED.framework:
            raise LaunchRefused(
                f"framework {spec.framework} can be estimated and is not launched from here; measure with"
                f" framework: {BUNDLED.framework}"
            )
        if spec.launcher.kind != "local":
            raise LaunchRefused(f"launcher {spec.launcher.kind} is not available here; use kind: local")
        needed = spec.cluster.world_size
        if spec.cluster.nodes > 1 or needed > self._machine.max_local_ranks:
            raise LaunchRefused(
                f"the cluster {spec.cluster.name} has {spec.cluster.nodes} x {spec.cluster.devices_per_node} devices"
                f" and this machine can run {self._machine.max_local_ranks} local ranks; estimate it instead, or use"
                f" cluster: {{preset: local, devices_per_node: N}} with N up to {self._machine.max_local_ranks}"
            )
        if spec.cluster.device.kind == "accelerator" and self._machine.accelerators == 0:
            raise LaunchRefused(
                f"the cluster's device {spec.cluster.device.name} is an accelerator and this machine has none;"
                " estimate it instead, or use cluster: {preset: local}"
            )
        self._require_memory(spec)

    def _require_memory(self, spec: TuningJob) -> None:
        """On CPU a device's memory is a share of the machine's: all shares together must exist."""
        wanted = spec.cluster.device.memory_bytes * spec.cluster.devices_per_node
        if spec.cluster.device.kind == "cpu" and wanted > self._machine.total_memory_bytes:
            share = self._machine.total_memory_bytes // spec.cluster.devices_per_node
            raise LaunchRefused(
                f"{spec.cluster.devices_per_node} devices of {spec.cluster.device.memory_bytes} bytes are more than the"
                f" {self._machine.total_memory_bytes} bytes of this machine; use memory_bytes up to {share}"
            )

    def cancel(self, job_id: str) -> Job:
        """Ask for the job to end; repeated asking is no error. A finished job stays as it is."""
        return self._want(job_id, "cancel")

    def pause(self, job_id: str) -> Job:
        """Let the running trial end and start no other. Raises Conflict when the job has finished."""
        return self._want(job_id, "pause")

    def resume(self, job_id: str) -> Job:
        """Go on after a pause. Raises Conflict when the job has finished."""
        return self._want(job_id, "run")

    def _want(self, job_id: str, desired: DesiredState) -> Job:
        with self._database.write() as store:
            job = store.jobs.get(job_id)
            if job.state in JOB_FINISHED:
                if desired == "cancel":
                    return job
                raise Conflict(f"job {job_id} is {job.state}: it can neither pause nor go on")
            wanted = store.jobs.set_desired(job_id, desired, now=self._clock())
            # A job that no worker holds changes at once; of a running one the worker reads the wish.
            new_state = _UNHELD.get((desired, job.state))
            return wanted if new_state is None else store.jobs.set_state(job_id, new_state, now=self._clock())

    def delete(self, job_id: str) -> None:
        """Remove a finished job with all its trials. Raises Conflict while it is not finished."""
        with self._database.write() as store:
            store.jobs.delete(job_id)

    def estimate(self, request: JobRequest, *, limit: int) -> EstimateReport:
        """Rank every candidate by estimate without running anything. Raises InvalidInput, NoFeasibleLayout."""
        spec = self.resolve(request)
        candidates = CandidateSet.build(spec, capabilities=capabilities_of(spec.framework))
        candidates.require_feasible()
        return EstimateReport(
            candidates=len(candidates.configs),
            parameters=count_parameters(spec.model),
            rejections=candidates.rejections,
            examples=candidates.examples,
            ranked=tuple(RankedEstimate.of(candidates.estimate_at(i)) for i in candidates.order()[:limit]),
        )

    def estimate_layout(self, spec: TuningJob, config: ParallelConfig) -> Estimate:
        """The estimate of one layout of a resolved job."""
        estimator = Estimator(spec.model, spec.workload, spec.cluster, memory_headroom=spec.space.memory_headroom)
        return estimator.estimate_one(config)

    def best(self, job_id: str) -> BestResult:
        """The best measured layout so far. Raises NotFound, NotReady."""
        with self._database.read() as store:
            return best_result(store.jobs.get(job_id), store.trials.list(job_id))

    def export(self, job_id: str, *, framework: str, launcher: str, steps: int | Derived) -> Bundle:
        """The files that launch the best layout. Raises NotFound, NotReady, InvalidInput.

        Derived `steps` are as many as take some twenty seconds: the script shows that it works and ends by itself.
        """
        if framework != "bundled":
            raise InvalidInput(f"unknown framework {framework!r}; known: bundled", field="framework")
        if launcher not in ("local", "torchrun"):
            raise InvalidInput(f"unknown launcher {launcher!r}; known: local, torchrun", field="launcher")
        with self._database.read() as store:
            job = store.jobs.get(job_id)
            best = best_result(job, store.trials.list(job_id))
        enough = min(_MAX_DEMO_STEPS, max(_MIN_DEMO_STEPS, int(_DEMO_SECONDS / best.step_seconds.median)))
        wanted = steps if isinstance(steps, int) else enough
        return export_bundled(job.spec, best.config, steps=wanted, best=best, created_at=self._clock())

    def log_tail(self, trial_id: str, *, rank: int, max_bytes: int) -> str:
        """The end of one rank's log in the trial's latest run. Raises NotFound."""
        with self._database.read() as store:
            store.trials.get(trial_id)
            runs = store.runs.of_trial(trial_id)
        if not runs:
            raise NotFound(f"trial {trial_id} has not been started yet, so it has no log")
        return log_tail(self._runs_root / runs[-1].name, rank=rank, max_bytes=max_bytes)

    def _probe(self) -> ProbeResult | None:
        with self._database.read() as store:
            payload = store.calibrations.get(PROBE_KEY)
        return None if payload is None else ProbeResult.from_json(payload)
