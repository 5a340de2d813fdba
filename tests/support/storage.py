"""Values and shortcuts for tests of the database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from autotuner.domain.cluster import ClusterSpec, DeviceSpec, LinkSpec, PeakFlops
from autotuner.domain.estimate import Estimate, MemoryParts, StageMemory, TimeParts
from autotuner.domain.job import Job, TuningJob
from autotuner.domain.launcher import LauncherSpec
from autotuner.domain.measurement import Measurement, StepSeconds
from autotuner.domain.model import ModelSpec
from autotuner.domain.objective import Budget, MeasurePlan
from autotuner.domain.parallel import ParallelConfig
from autotuner.domain.space import SearchSpace
from autotuner.domain.trial import Trial
from autotuner.domain.workload import Workload
from autotuner.storage.store import Store

T0 = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)


def later(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def sqlite_url(folder: Path) -> str:
    return f"sqlite:///{folder / 'autotuner.db'}"


def tuning_job(name: str = "a job") -> TuningJob:
    device = DeviceSpec(
        name="cpu", kind="cpu", memory_bytes=2**30, peak_flops=PeakFlops(), memory_bandwidth_bytes_per_second=1e10
    )
    link = LinkSpec(bandwidth_bytes_per_second=1e9)
    return TuningJob(
        name=name,
        model=ModelSpec(num_layers=2, hidden_size=64, num_heads=4, vocab_size=256, max_seq_len=32),
        workload=Workload(seq_len=32, global_batch_size=8, precision="fp32"),
        cluster=ClusterSpec(devices_per_node=4, device=device, intra_node=link, inter_node=link),
        space=SearchSpace(tp=(1, 2)),
        baseline=ParallelConfig(dp=4),
        framework="bundled",
        objective="tokens_per_second",
        budget=Budget(),
        strategy="default",
        seed=0,
        measure=MeasurePlan(),
        launcher=LauncherSpec(),
    )


def measurement(*, tokens_per_second: float = 1000.0, step_seconds: float = 0.25, runs: int = 1) -> Measurement:
    step = StepSeconds(min=step_seconds, median=step_seconds, p10=step_seconds, p90=step_seconds, count=2)
    return Measurement(
        step_seconds=step,
        samples_seconds=(step_seconds, step_seconds),
        tokens_per_second=tokens_per_second,
        tokens_per_second_per_device=tokens_per_second / 4,
        mfu=None,
        peak_memory_bytes=2**33,
        peak_memory_per_stage_bytes=(2**33,),
        startup_seconds=1.5,
        runs=runs,
    )


def estimate(config: ParallelConfig) -> Estimate:
    time = TimeParts(
        compute=0.2,
        recompute=0.0,
        tp_communication=0.0,
        pp_communication=0.0,
        dp_communication=0.05,
        bubble=0.0,
        optimizer=0.0,
        overhead=0.0,
    )
    parts = MemoryParts(
        weights=1.0, gradients=1.0, optimizer=2.0, activations=0.0, logits=0.0, buffers=0.0, context=0.0
    )
    return Estimate(
        config=config,
        step_seconds=0.25,
        tokens_per_second=1024.0,
        mfu=None,
        memory_bytes=4.0,
        probability_fits=1.0,
        fits=True,
        sigma=0.1,
        bubble_fraction=0.0,
        time=time,
        memory=(StageMemory(stage=0, num_layers=2, total_bytes=4.0, parts=parts),),
    )


def add_job(store: Store, job_id: str, *, now: datetime = T0) -> Job:
    return store.jobs.create(job_id=job_id, spec=tuning_job(), candidates=12, rejections={"memory": 3}, now=now)


def add_trial(store: Store, trial_id: str, *, job_id: str, micro_batch_size: int = 1, now: datetime = T0) -> Trial:
    config = ParallelConfig(dp=4, micro_batch_size=micro_batch_size)
    return store.trials.create(
        trial_id=trial_id,
        job_id=job_id,
        config=config,
        source="estimate",
        reason="the best estimate",
        estimate=estimate(config),
        now=now,
    )


def add_measured(store: Store, trial_id: str, *, job_id: str, micro_batch_size: int, tokens_per_second: float) -> Trial:
    add_trial(store, trial_id, job_id=job_id, micro_batch_size=micro_batch_size)
    store.trials.launching(trial_id, now=T0)
    return store.trials.succeeded(trial_id, measurement(tokens_per_second=tokens_per_second), now=T0)
