"""A database full of example jobs, for screenshots and browser tests: all states, failures, a running trial.

The figures are made up by a small formula with a fixed seed; they look like those of a real search and claim nothing.
Everything goes in through the repositories, so that a page shows it exactly as it would show the real thing.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from autotuner.domain.cluster import ClusterSpec, DeviceSpec, LinkSpec, PeakFlops
from autotuner.domain.estimate import Estimate, MemoryParts, StageMemory, TimeParts
from autotuner.domain.job import Job, JobState, TuningJob
from autotuner.domain.launcher import LauncherSpec
from autotuner.domain.measurement import Environment, Failure, Measurement, StepSeconds
from autotuner.domain.model import ModelSpec
from autotuner.domain.objective import Budget, MeasurePlan
from autotuner.domain.parallel import ParallelConfig
from autotuner.domain.space import SearchSpace
from autotuner.domain.trial import Trial, TrialSource
from autotuner.domain.workload import Workload
from autotuner.storage.database import Database
from autotuner.storage.ids import new_id
from autotuner.storage.store import Store

GIB = 2**30
REJECTIONS = {
    "memory": 212,
    "batch_divisible": 141,
    "microbatches_for_interleaving": 96,
    "sequence_parallel_needs_tp": 64,
    "zero_needs_dp": 40,
    "heads_divisible_by_tp": 18,
}
OUT_OF_MEMORY = Failure(
    kind="out_of_memory",
    message="rank 0 asked for 3.06 GiB and 1.12 GiB of 80.00 GiB were free",
    rank=0,
    log_tail="step 1 forward\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.06 GiB.",
    hint="Needs about 2.4 GiB less a device: micro-batch 4, or selective recompute.",
)
TIMED_OUT = Failure(
    kind="timeout",
    message="no result after 120 s",
    log_tail="step 3 of 8: 21.4 s",
    hint="It was slower than the trial's limit of 120 s; raise budget.trial_timeout_seconds to measure it.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One example job: how many trials it has, and how it stands."""

    name: str
    state: JobState
    trials: int
    age: timedelta
    model: ModelSpec
    cluster: ClusterSpec
    seed: int
    stopped_because: str = ""
    error: str = ""


def gpu_cluster(*, nodes: int = 1) -> ClusterSpec:
    """Nodes of eight 80 GiB accelerators."""
    return ClusterSpec(
        name="dgx-a100",
        nodes=nodes,
        devices_per_node=8,
        device=DeviceSpec(
            name="A100-80GB",
            memory_bytes=80 * GIB,
            peak_flops=PeakFlops(fp32=19.5e12, bf16=312e12, fp16=312e12),
            memory_bandwidth_bytes_per_second=2.0e12,
        ),
        intra_node=LinkSpec(bandwidth_bytes_per_second=300e9),
        inter_node=LinkSpec(bandwidth_bytes_per_second=25e9),
    )


def cpu_cluster() -> ClusterSpec:
    """Four ranks on this machine."""
    return ClusterSpec(
        name="local",
        devices_per_node=4,
        device=DeviceSpec(
            name="cpu",
            kind="cpu",
            memory_bytes=2 * GIB,
            peak_flops=PeakFlops(fp32=6e10),
            memory_bandwidth_bytes_per_second=1.2e10,
        ),
        intra_node=LinkSpec(bandwidth_bytes_per_second=2e9),
        inter_node=LinkSpec(bandwidth_bytes_per_second=1e9),
    )


GPT = ModelSpec(name="gpt2-1.3b", num_layers=24, hidden_size=2048, num_heads=16, vocab_size=50_304, max_seq_len=2048)
LLAMA = ModelSpec(
    name="llama-7b",
    num_layers=32,
    hidden_size=4096,
    num_heads=32,
    gated_ffn=True,
    ffn_hidden_size=11_008,
    vocab_size=32_000,
    max_seq_len=4096,
    norm="rms",
    position="rope",
    biases=False,
    tied_embeddings=False,
)
TINY = ModelSpec(name="gpt-tiny", num_layers=4, hidden_size=128, num_heads=4, vocab_size=512, max_seq_len=128)

STOPPED = "12 trials in a row found nothing faster (patience_trials 12)"
EXAMPLES = (
    Example(
        name="nightly smoke test",
        state="cancelled",
        trials=3,
        age=timedelta(days=3),
        model=TINY,
        cluster=cpu_cluster(),
        seed=5,
        stopped_because="cancelled",
    ),
    Example(
        name="llama 7b, wrong driver",
        state="failed",
        trials=0,
        age=timedelta(days=1, hours=2),
        model=LLAMA,
        cluster=gpu_cluster(nodes=2),
        seed=4,
        error="three trials in a row could not be started: NCCL found no device",
    ),
    Example(
        name="tiny gpt on this machine",
        state="paused",
        trials=5,
        age=timedelta(hours=7),
        model=TINY,
        cluster=cpu_cluster(),
        seed=3,
    ),
    Example(
        name="gpt 1.3b on one node",
        state="completed",
        trials=19,
        age=timedelta(hours=3),
        model=GPT,
        cluster=gpu_cluster(),
        seed=1,
        stopped_because=STOPPED,
    ),
    Example(
        name="llama 7b on one node",
        state="running",
        trials=8,
        age=timedelta(minutes=21),
        model=LLAMA,
        cluster=gpu_cluster(),
        seed=2,
    ),
    Example(
        name="gpt 1.3b, longer sequences",
        state="queued",
        trials=0,
        age=timedelta(minutes=2),
        model=GPT,
        cluster=gpu_cluster(),
        seed=6,
    ),
)


def fill(database: Database, *, now: datetime, examples: Sequence[Example] = EXAMPLES) -> dict[str, str]:
    """Store the examples, oldest first; gives the id of each job by its name."""
    ids = {}
    for example in examples:
        with database.write() as store:
            ids[example.name] = _Writer(store, example, now=now - example.age).write()
            store.workers.beat("gpu-01:4242:0a1b2c3d", host="gpu-01", version="0.1.0", devices=16, now=now)
    return ids


def layouts(world_size: int) -> list[ParallelConfig]:
    """Layouts in the order in which a search might try them: a plain baseline first."""
    tp_first = [ParallelConfig(tp=8, dp=world_size // 8)] if world_size >= 8 else [ParallelConfig(tp=world_size)]
    rest = [
        ParallelConfig(
            tp=tp,
            pp=pp,
            dp=world_size // (tp * pp),
            micro_batch_size=mb,
            virtual_stages=2 if pp > 1 and mb == 2 else 1,
            sequence_parallel=tp > 1 and mb > 1,
            zero_stage=1 if world_size // (tp * pp) > 1 else 0,
            recompute="selective" if mb == 4 else "none",
        )
        for mb in (4, 8, 2, 1)
        for tp in (1, 2, 4)
        for pp in (1, 2, 4)
        if world_size % (tp * pp) == 0
    ]
    return tp_first + rest


class _Writer:
    """Writes one example; its clock moves on with each trial."""

    def __init__(self, store: Store, example: Example, *, now: datetime) -> None:
        self._store = store
        self._example = example
        self._now = now
        self._random = random.Random(example.seed)  # noqa: S311 - example figures
        self._spec = _spec(example)

    def write(self) -> str:
        store, example = self._store, self._example
        job = store.jobs.create(
            job_id=new_id(clock=lambda: self._now),
            spec=self._spec,
            candidates=684,
            rejections=REJECTIONS,
            now=self._now,
        )
        if example.state == "queued":
            return job.id
        store.jobs.set_state(job.id, "running", now=self._tick(seconds=2))
        configs = layouts(self._spec.cluster.world_size)[: example.trials]
        for number, config in enumerate(configs):
            self._trial(job, config, number=number, runs_now=example.state == "running" and number == len(configs) - 1)
        self._end(job)
        return job.id

    def _end(self, job: Job) -> None:
        state, jobs = self._example.state, self._store.jobs
        if state == "running":
            return
        if state == "cancelled":
            jobs.set_state(job.id, "cancelling", now=self._tick(seconds=1))
        jobs.set_state(
            job.id,
            state,
            now=self._tick(seconds=1),
            stopped_because=self._example.stopped_because,
            error=self._example.error,
        )

    def _trial(self, job: Job, config: ParallelConfig, *, number: int, runs_now: bool) -> None:
        trials = self._store.trials
        predicted = self._estimate(config)
        trial = trials.create(
            trial_id=new_id(clock=lambda: self._now),
            job_id=job.id,
            config=config,
            source=_source(number),
            reason=_reason(number, predicted),
            estimate=predicted,
            now=self._tick(seconds=1),
        )
        trials.launching(trial.id, now=self._tick(seconds=1))
        trials.running(trial.id, now=self._tick(seconds=4))
        if runs_now:
            progress(self._store, trial, step=3, now=self._now)
            return
        self._result(trial, predicted, number=number)

    def _result(self, trial: Trial, predicted: Estimate, *, number: int) -> None:
        now = self._tick(seconds=40)
        accelerator = self._spec.cluster.device.kind == "accelerator"
        if accelerator and number in (4, 6):
            self._store.trials.failed(trial.id, OUT_OF_MEMORY if number == 4 else TIMED_OUT, now=now)
            return
        off = math.exp(self._random.gauss(0.06, 0.07))
        result = self._measurement(predicted, step_seconds=predicted.step_seconds * off)
        self._store.trials.succeeded(trial.id, result, now=now)

    def _measurement(self, predicted: Estimate, *, step_seconds: float) -> Measurement:
        spread = 0.004 + 0.02 * self._random.random()
        samples = tuple(step_seconds * (1 + spread * self._random.gauss(0, 0.6)) for _ in range(6))
        tokens = self._spec.workload.tokens_per_step
        peak = predicted.mfu
        stages = predicted.config.pp
        memory_bytes = int(predicted.memory_bytes * math.exp(self._random.gauss(-0.02, 0.04)))
        return Measurement(
            step_seconds=StepSeconds(
                min=min(samples),
                median=step_seconds,
                p10=step_seconds * (1 - spread),
                p90=step_seconds * (1 + spread),
                count=6,
            ),
            samples_seconds=samples,
            tokens_per_second=tokens / step_seconds,
            tokens_per_second_per_device=tokens / step_seconds / self._spec.cluster.world_size,
            mfu=None if peak is None else peak * predicted.step_seconds / step_seconds,
            peak_memory_bytes=memory_bytes,
            peak_memory_per_stage_bytes=tuple(int(memory_bytes * (1 - 0.06 * stage)) for stage in range(stages)),
            startup_seconds=4.1,
            environment=Environment(hostname="gpu-01", device_name=self._spec.cluster.device.name),
        )

    def _estimate(self, config: ParallelConfig) -> Estimate:
        """Seconds of one step: compute, made slower by small matrices, communication and the pipeline's bubble."""
        model, cluster, work = self._spec.model, self._spec.cluster, self._spec.workload
        parameters = 12 * model.num_layers * model.hidden_size**2 + model.vocab_size * model.hidden_size
        accelerator = cluster.device.kind == "accelerator"
        device_flops = 312e12 if accelerator else 6e10
        ideal = 6 * parameters * work.tokens_per_step / (device_flops * cluster.world_size)
        compute = ideal / 0.62 * (1 + 0.22 / config.micro_batch_size)
        recompute = 0.05 * compute if config.recompute == "selective" else 0.0
        tensor = 0.05 * compute * (config.tp - 1) ** 0.8
        pipeline = 0.01 * compute * (config.pp - 1)
        replica = 0.05 * compute * math.log2(max(1, config.dp))
        batches = config.num_microbatches(work.global_batch_size)
        fraction = (config.pp - 1) / (config.virtual_stages * batches + config.pp - 1)
        bubble = (compute + recompute) * fraction / (1 - fraction)
        step = compute + recompute + tensor + pipeline + replica + bubble + 0.02 * compute
        state_bytes = (2 + 4 + (12 / config.dp if config.zero_stage else 12)) * parameters / (config.tp * config.pp)
        saved_bytes = (10 if config.recompute == "selective" else 26) * config.micro_batch_size
        activation_bytes = saved_bytes * work.seq_len * model.hidden_size * model.num_layers / config.tp * 1.2
        total_bytes = state_bytes + activation_bytes + (2 * GIB if accelerator else 0)
        return Estimate(
            config=config,
            step_seconds=step,
            tokens_per_second=work.tokens_per_step / step,
            mfu=ideal / step if accelerator else None,
            memory_bytes=total_bytes,
            probability_fits=0.97 if total_bytes < 0.9 * cluster.device.memory_bytes else 0.4,
            fits=True,
            sigma=0.12,
            bubble_fraction=fraction,
            time=TimeParts(
                compute=compute,
                recompute=recompute,
                tp_communication=tensor,
                pp_communication=pipeline,
                dp_communication=replica,
                bubble=bubble,
                optimizer=0.02 * compute,
                overhead=0.0,
            ),
            memory=(
                StageMemory(
                    stage=0,
                    num_layers=model.num_layers // config.pp,
                    total_bytes=total_bytes,
                    parts=MemoryParts(
                        weights=state_bytes / 8,
                        gradients=state_bytes / 8,
                        optimizer=state_bytes * 3 / 4,
                        activations=activation_bytes,
                        logits=0.0,
                        buffers=0.0,
                        context=total_bytes - state_bytes - activation_bytes,
                    ),
                ),
            ),
        )

    def _tick(self, *, seconds: float) -> datetime:
        self._now += timedelta(seconds=seconds)
        return self._now


def progress(store: Store, trial: Trial, *, step: int, now: datetime) -> None:
    """The event that a worker writes for each step of a run."""
    data = {"number": trial.number, "purpose": "measure", "phase": "measure", "step": step, "total_steps": 8}
    store.events.append(trial.job_id, "trial.progress", trial_id=trial.id, data=data, now=now)


def _spec(example: Example) -> TuningJob:
    accelerator = example.cluster.device.kind == "accelerator"
    return TuningJob(
        name=example.name,
        model=example.model,
        workload=Workload(
            seq_len=example.model.max_seq_len,
            global_batch_size=256 if accelerator else 32,
            precision="bf16" if accelerator else "fp32",
        ),
        cluster=example.cluster,
        space=SearchSpace(),
        baseline=None,
        framework="bundled",
        objective="tokens_per_second",
        budget=Budget(max_trials=24),
        strategy="default",
        seed=0,
        measure=MeasurePlan(),
        launcher=LauncherSpec(),
    )


def _source(number: int) -> TrialSource:
    if number == 0:
        return "baseline"
    return "estimate" if number < 6 else "sampler"


def _reason(number: int, predicted: Estimate) -> str:
    memory = f"memory {predicted.memory_bytes / GIB:.1f} GiB"
    if number == 0:
        return "The layout to beat: tensor parallel over all devices of a node, nothing else switched on."
    if number < 6:
        return f"Number {number} by estimate: {predicted.tokens_per_second:,.0f} tokens/s, {memory}."
    return f"Expected {12 / number:+.1f} % ± 4 % on the best so far, {memory}."
