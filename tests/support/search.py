"""Jobs, capabilities, a made-up cost model and made-up trials for tests of the search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from autotuner.domain.capabilities import Capabilities
from autotuner.domain.cluster import ClusterSpec, DeviceSpec, LinkSpec, PeakFlops
from autotuner.domain.estimate import Estimate, MemoryParts, StageMemory, TimeParts
from autotuner.domain.job import TuningJob
from autotuner.domain.launcher import LauncherSpec
from autotuner.domain.measurement import Failure, FailureKind, Measurement, StepSeconds
from autotuner.domain.model import ModelSpec
from autotuner.domain.objective import Budget, MeasurePlan
from autotuner.domain.parallel import ParallelConfig
from autotuner.domain.space import SearchSpace
from autotuner.domain.trial import Trial, TrialSource, TrialState
from autotuner.domain.workload import Workload
from autotuner.search.enumerate import enumerate_layouts
from autotuner.search.ranking import CandidateSet

GIB = 2**30
NOW = datetime(2026, 1, 1, tzinfo=UTC)

EVERYTHING = Capabilities(
    framework="everything",
    precisions=("fp32", "bf16", "fp16", "fp8"),
    norms=("layer", "rms"),
    positions=("learned", "rope", "none"),
    grouped_query_attention=True,
    gated_ffn=True,
    moe=True,
    max_virtual_stages=64,
    sequence_parallel=True,
    zero_stages=(0, 1, 2, 3),
    recompute=("none", "selective", "full"),
    max_context_parallel=64,
    max_expert_parallel=64,
    uneven_stages=True,
    pads_vocabulary=True,
    kv_heads_replicated=True,
)


def able(**changes: Any) -> Capabilities:
    """A framework that can do everything, except what is changed."""
    return EVERYTHING.model_copy(update=changes)


def make_model(**changes: Any) -> ModelSpec:
    """8 layers, 8 heads of 8, width 64."""
    return ModelSpec(**({"num_layers": 8, "hidden_size": 64, "num_heads": 8, "vocab_size": 512} | changes))


def make_cluster(*, nodes: int = 1, devices_per_node: int = 8, memory_bytes: int = 80 * GIB) -> ClusterSpec:
    """Devices with round numbers."""
    return ClusterSpec(
        nodes=nodes,
        devices_per_node=devices_per_node,
        device=DeviceSpec(
            name="made-up",
            memory_bytes=memory_bytes,
            peak_flops=PeakFlops(bf16=1e14),
            memory_bandwidth_bytes_per_second=1e12,
        ),
        intra_node=LinkSpec(bandwidth_bytes_per_second=3e11),
        inter_node=LinkSpec(bandwidth_bytes_per_second=5e10),
    )


def make_job(
    *,
    model: ModelSpec | None = None,
    cluster: ClusterSpec | None = None,
    space: dict[str, Any] | None = None,
    budget: dict[str, Any] | None = None,
    global_batch_size: int = 64,
    seq_len: int = 128,
    **changes: Any,
) -> TuningJob:
    """A small job on eight devices."""
    fields: dict[str, Any] = {
        "name": "test",
        "model": model or make_model(),
        "workload": Workload(seq_len=seq_len, global_batch_size=global_batch_size),
        "cluster": cluster or make_cluster(),
        "space": SearchSpace(**(space or {})),
        "baseline": None,
        "framework": "everything",
        "objective": "tokens_per_second",
        "budget": Budget(**({"patience_trials": 1000} | (budget or {}))),
        "strategy": "default",
        "seed": 0,
        "measure": MeasurePlan(),
        "launcher": LauncherSpec(),
    }
    return TuningJob(**(fields | changes))


@dataclass(frozen=True)
class FakeTable:
    """Estimates made by `FakeEstimator`."""

    configs: Sequence[ParallelConfig]
    step_seconds: np.ndarray
    memory_bytes: np.ndarray
    probability_fits: np.ndarray

    def at(self, index: int) -> Estimate:
        return make_estimate(
            self.configs[index],
            step_seconds=float(self.step_seconds[index]),
            memory_bytes=float(self.memory_bytes[index]),
            probability_fits=float(self.probability_fits[index]),
        )


@dataclass(frozen=True)
class FakeEstimator:
    """Smooth made-up step time and memory: no hardware, but the trade-offs of a real one."""

    job: TuningJob

    def evaluate(self, configs: Sequence[ParallelConfig]) -> FakeTable:
        seconds = np.array([fake_seconds(c, job=self.job) for c in configs])
        memory = np.array([fake_memory_bytes(c) for c in configs])
        fits = 1.0 / (1.0 + (memory / self.job.cluster.device.memory_bytes) ** 20)
        return FakeTable(configs, seconds, memory, fits)

    def estimate_one(self, config: ParallelConfig) -> Estimate:
        return self.evaluate([config]).at(0)


def fake_seconds(config: ParallelConfig, *, job: TuningJob) -> float:
    """Compute, a bubble, communication of tp and dp, a cost for each micro-batch, and recomputation."""
    num_microbatches = config.num_microbatches(job.workload.global_batch_size)
    compute = (1.0 + 0.3 / config.micro_batch_size) * {"none": 1.0, "selective": 1.03, "full": 1.3}[config.recompute]
    bubble = (config.pp - 1) / (num_microbatches * config.virtual_stages)
    tp_cost = 0.10 * np.log2(config.tp) * (0.9 if config.sequence_parallel else 1.0)
    dp_cost = 0.03 * np.log2(config.dp) * (1.0 + 0.1 * config.zero_stage)
    virtual_cost = 0.02 * (config.virtual_stages - 1)
    return float(compute * (1 + bubble) + tp_cost + dp_cost + virtual_cost)


def fake_memory_bytes(config: ParallelConfig) -> float:
    """Model states over tp x pp (and dp under ZeRO), activations by micro-batch and recomputation."""
    states = 160.0 / (config.tp * config.pp)
    if config.zero_stage:
        states *= 0.4 + 0.6 / config.dp
    kept = {"none": 1.0, "selective": 0.7, "full": 0.2}[config.recompute]
    activations = 6.0 * config.micro_batch_size * kept / config.tp * (0.7 if config.sequence_parallel else 1.0)
    return float((states + activations + 2.0) * GIB)


def make_candidates(job: TuningJob, *, capabilities: Capabilities = EVERYTHING) -> CandidateSet:
    """The job's candidates by the made-up cost model."""
    enumeration = enumerate_layouts(job, capabilities=capabilities)
    return CandidateSet.of(enumeration, job=job, estimator=FakeEstimator(job))


def make_estimate(
    config: ParallelConfig, *, step_seconds: float = 1.0, memory_bytes: float = GIB, probability_fits: float = 1.0
) -> Estimate:
    """An estimate whose parts do not matter."""
    no_time = dict.fromkeys(TimeParts.model_fields, 0.0)
    no_memory = dict.fromkeys(MemoryParts.model_fields, 0.0)
    return Estimate(
        config=config,
        step_seconds=step_seconds,
        tokens_per_second=1.0 / step_seconds,
        mfu=None,
        memory_bytes=memory_bytes,
        probability_fits=probability_fits,
        fits=probability_fits >= 0.5,
        sigma=0.1,
        bubble_fraction=0.0,
        time=TimeParts(**(no_time | {"compute": step_seconds})),
        memory=(
            StageMemory(
                stage=0,
                num_layers=1,
                total_bytes=memory_bytes,
                parts=MemoryParts(**(no_memory | {"weights": memory_bytes})),
            ),
        ),
    )


def make_measurement(step_seconds: float, *, peak_memory_bytes: int = GIB) -> Measurement:
    """A measurement in which every step took as long; not validated, so that NaN can be written."""
    statistics = StepSeconds.model_construct(
        min=step_seconds, median=step_seconds, p10=step_seconds, p90=step_seconds, count=3
    )
    rate = 1000.0 / step_seconds if step_seconds else float("inf")
    return Measurement.model_construct(
        step_seconds=statistics,
        samples_seconds=(step_seconds,) * 3,
        tokens_per_second=rate,
        tokens_per_second_per_device=rate / 8,
        mfu=None,
        peak_memory_bytes=peak_memory_bytes,
        peak_memory_per_stage_bytes=(peak_memory_bytes,),
        startup_seconds=1.0,
        runs=1,
    )


def make_trial(
    number: int,
    config: ParallelConfig,
    *,
    step_seconds: float | None = None,
    peak_memory_bytes: int = GIB,
    failure: FailureKind | None = None,
    state: TrialState = "succeeded",
    source: TrialSource = "sampler",
    estimate: Estimate | None = None,
) -> Trial:
    """A trial that succeeded with `step_seconds`, failed with `failure`, or is in `state`."""
    measurement = None
    if step_seconds is not None:
        measurement = make_measurement(step_seconds, peak_memory_bytes=peak_memory_bytes)
    return Trial.model_construct(
        id=f"t{number}",
        job_id="job",
        number=number,
        config=config,
        state="failed" if failure else state,
        source=source,
        reason="because",
        estimate=estimate,
        measurement=measurement,
        failure=None if failure is None else Failure(kind=failure, message="it failed"),
        attempts=1,
        created_at=NOW,
        started_at=NOW,
        finished_at=NOW,
    )
