"""Services for tests of the API: real storage in a temporary SQLite file, use cases that answer at once.

`FakeOperations` stands in for enumerating and estimating, which the API does not look into; what it stores goes through
the real repositories, so events, states and counts are the real ones.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from api.server import ApiServer
from autotuner.domain.base import Derived
from autotuner.domain.cluster import ClusterSpec, DeviceSpec, LinkSpec, PeakFlops
from autotuner.domain.errors import AutotunerError, NotFound
from autotuner.domain.estimate import Estimate, MemoryParts, StageMemory, TimeParts
from autotuner.domain.job import Job, JobRequest, TuningJob
from autotuner.domain.launcher import LauncherSpec
from autotuner.domain.machine import Machine
from autotuner.domain.measurement import Measurement, StepSeconds
from autotuner.domain.model import ModelSpec
from autotuner.domain.objective import Budget, MeasurePlan
from autotuner.domain.parallel import ParallelConfig
from autotuner.domain.result import BestResult, EstimateReport, RankedEstimate
from autotuner.domain.space import SearchSpace
from autotuner.domain.trial import Trial
from autotuner.domain.workload import Workload
from autotuner.export.base import Bundle
from autotuner.operations.best import best_result
from autotuner.settings import Settings
from autotuner.storage.database import Database
from autotuner.storage.ids import new_id
from autotuner.storage.store import Store
from autotuner.wiring import Services

if TYPE_CHECKING:
    from autotuner.operations import Operations

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
GIB = 2**30

JOB_BODY: dict[str, Any] = {
    "name": "tiny gpt",
    "model": {"num_layers": 4, "hidden_size": 64, "num_heads": 4, "vocab_size": 512, "max_seq_len": 128},
    "workload": {"global_batch_size": 8},
    "cluster": {"preset": "local", "devices_per_node": 2},
}


def cluster(*, devices: int = 4) -> ClusterSpec:
    """One node of CPU devices with 2 GiB each."""
    return ClusterSpec(
        name="local",
        devices_per_node=devices,
        device=DeviceSpec(
            name="cpu",
            kind="cpu",
            memory_bytes=2 * GIB,
            peak_flops=PeakFlops(fp32=5e10),
            memory_bandwidth_bytes_per_second=1e10,
        ),
        intra_node=LinkSpec(bandwidth_bytes_per_second=2e9),
        inter_node=LinkSpec(bandwidth_bytes_per_second=1e9),
    )


def tuning_job(*, name: str = "tiny gpt", devices: int = 4, max_trials: int = 24) -> TuningJob:
    """A resolved job of a small model."""
    return TuningJob(
        name=name,
        model=ModelSpec(name="gpt-tiny", num_layers=4, hidden_size=64, num_heads=4, vocab_size=512, max_seq_len=128),
        workload=Workload(seq_len=128, global_batch_size=8, precision="fp32"),
        cluster=cluster(devices=devices),
        space=SearchSpace(),
        baseline=None,
        framework="bundled",
        objective="tokens_per_second",
        budget=Budget(max_trials=max_trials),
        strategy="default",
        seed=0,
        measure=MeasurePlan(),
        launcher=LauncherSpec(),
    )


def estimate(config: ParallelConfig, *, step_seconds: float, tokens_per_step: int = 1024) -> Estimate:
    """A prediction whose parts sum to the total: 70 % compute, 20 % tensor parallel communication, 10 % optimizer."""
    memory_bytes = 300e6 / config.tp
    return Estimate(
        config=config,
        step_seconds=step_seconds,
        tokens_per_second=tokens_per_step / step_seconds,
        mfu=None,
        memory_bytes=memory_bytes,
        probability_fits=1.0,
        fits=True,
        sigma=0.12,
        bubble_fraction=0.0,
        time=TimeParts(
            compute=0.7 * step_seconds,
            recompute=0.0,
            tp_communication=0.2 * step_seconds,
            pp_communication=0.0,
            dp_communication=0.0,
            bubble=0.0,
            optimizer=0.1 * step_seconds,
            overhead=0.0,
        ),
        memory=(
            StageMemory(
                stage=0,
                num_layers=4,
                total_bytes=memory_bytes,
                parts=MemoryParts(
                    weights=0.2 * memory_bytes,
                    gradients=0.2 * memory_bytes,
                    optimizer=0.4 * memory_bytes,
                    activations=0.1 * memory_bytes,
                    logits=0.05 * memory_bytes,
                    buffers=0.05 * memory_bytes,
                    context=0.0,
                ),
            ),
        ),
    )


def measurement(*, step_seconds: float, tokens_per_step: int = 1024, devices: int = 4, runs: int = 1) -> Measurement:
    """Six steps around a median, spread by 3 % to both sides."""
    samples = tuple(step_seconds * factor for factor in (0.97, 0.98, 1.0, 1.0, 1.02, 1.03)) * runs
    return Measurement(
        step_seconds=StepSeconds(
            min=samples[0], median=step_seconds, p10=step_seconds * 0.975, p90=step_seconds * 1.025, count=6 * runs
        ),
        samples_seconds=samples,
        tokens_per_second=tokens_per_step / step_seconds,
        tokens_per_second_per_device=tokens_per_step / step_seconds / devices,
        mfu=None,
        peak_memory_bytes=280_000_000,
        peak_memory_per_stage_bytes=(280_000_000,),
        startup_seconds=1.2,
        runs=runs,
    )


class FakeOperations:
    """The use cases without a cost model. Set `refusal` to have the next computing call raise it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._now = START
        self.refusal: Exception | None = None
        self.submitted: list[JobRequest] = []
        self.log = "step 1\n"

    def clock(self) -> datetime:
        """A minute later with each call."""
        self._now += timedelta(minutes=1)
        return self._now

    def submit(self, request: JobRequest) -> Job:
        self._refuse()
        self.submitted.append(request)
        with self._database.write() as store:
            return add_job(store, spec=tuning_job(name=request.name), now=self.clock())

    def estimate(self, request: JobRequest, *, limit: int) -> EstimateReport:
        self._refuse()
        layouts = [ParallelConfig(tp=tp, dp=4 // tp, micro_batch_size=mb) for tp in (1, 2, 4) for mb in (1, 2)]
        ranked = [RankedEstimate.of(estimate(c, step_seconds=0.1 * (i + 1))) for i, c in enumerate(layouts)]
        return EstimateReport(
            candidates=len(layouts),
            parameters=231_000,
            rejections={"heads_divisible_by_tp": 3, "batch_divisible": 2},
            examples=(),
            ranked=tuple(ranked[:limit]),
        )

    def cancel(self, job_id: str) -> Job:
        self._refuse()
        with self._database.write() as store:
            job = store.jobs.get(job_id)
            if job.state in ("queued", "paused"):
                return store.jobs.set_state(job_id, "cancelled", now=self.clock(), stopped_because="cancelled")
            return store.jobs.set_desired(job_id, "cancel", now=self.clock())

    def pause(self, job_id: str) -> Job:
        self._refuse()
        with self._database.write() as store:
            return store.jobs.set_desired(job_id, "pause", now=self.clock())

    def resume(self, job_id: str) -> Job:
        self._refuse()
        with self._database.write() as store:
            return store.jobs.set_desired(job_id, "run", now=self.clock())

    def delete(self, job_id: str) -> None:
        with self._database.write() as store:
            store.jobs.delete(job_id)

    def best(self, job_id: str) -> BestResult:
        with self._database.read() as store:
            return best_result(store.jobs.get(job_id), store.trials.list(job_id))

    def export(self, job_id: str, *, framework: str, launcher: str, steps: int | Derived) -> Bundle:
        best = self.best(job_id)
        script = f"# {framework} {launcher} {steps} {best.config.key()}\ntorchrun train.py\n"
        return Bundle.of({"launch.sh": script}, executable=frozenset({"launch.sh"}))

    def log_tail(self, trial_id: str, *, rank: int, max_bytes: int) -> str:
        with self._database.read() as store:
            store.trials.get(trial_id)
        if rank > 3:
            raise NotFound(f"trial {trial_id} has no rank {rank}")
        return self.log[-max_bytes:]

    def _refuse(self) -> None:
        if self.refusal is not None:
            refusal, self.refusal = self.refusal, None
            raise refusal


def refusing(operations: FakeOperations, error: AutotunerError | RuntimeError) -> None:
    """Have the next computing call raise `error`."""
    operations.refusal = error


def add_job(store: Store, *, spec: TuningJob, now: datetime) -> Job:
    """A queued job."""
    return store.jobs.create(
        job_id=new_id(clock=lambda: now), spec=spec, candidates=40, rejections={"batch_divisible": 12}, now=now
    )


def add_trial(store: Store, job_id: str, *, config: ParallelConfig, step_seconds: float | None, now: datetime) -> Trial:
    """A trial that was measured with this median, or one that still runs."""
    trial = store.trials.create(
        trial_id=new_id(clock=lambda: now),
        job_id=job_id,
        config=config,
        source="estimate",
        reason="Fastest by estimate.",
        estimate=estimate(config, step_seconds=0.1),
        now=now,
    )
    store.trials.launching(trial.id, now=now)
    trial = store.trials.running(trial.id, now=now)
    if step_seconds is None:
        return trial
    return store.trials.succeeded(trial.id, measurement(step_seconds=step_seconds), now=now)


@contextmanager
def running_server(services: Services, *, port: int = 0) -> Iterator[ApiServer]:
    """A real server in a thread of its own; by default on a free port."""
    listening = threading.Event()
    server = ApiServer(services, host="127.0.0.1", port=port, ready=lambda _: listening.set())
    thread = threading.Thread(target=server.run_until_stopped)
    thread.start()
    try:
        if not listening.wait(20):
            raise RuntimeError("the server does not listen after 20 s")
        yield server
    finally:
        server.request_stop()
        thread.join(20)
    if thread.is_alive():
        raise RuntimeError("the server does not end after 20 s")


@contextmanager
def open_services(folder: Path) -> Iterator[Services]:
    """Services on a new database in `folder`; `operations` is a FakeOperations."""
    settings = Settings(data_dir=folder, database_url=f"sqlite:///{folder / 'test.db'}")
    database = Database.open(settings.resolved_database_url)
    services = Services(
        settings=settings,
        database=database,
        operations=cast("Operations", FakeOperations(database)),
        machine=Machine(hostname="test", cores=2, total_memory_bytes=8 * GIB),
    )
    try:
        yield services
    finally:
        services.close()
