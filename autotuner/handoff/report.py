"""What a run left in its folder as a `Measurement` or a `Failure`.

A complete report that fits the request is trusted first, whatever ended the processes afterwards; `failures.py` decides
the rest.  Throughput and MFU come from the cost model's formulas, with the median of the measured steps.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from autotuner.costmodel.flops import mfu, tokens_per_second, tokens_per_second_per_device
from autotuner.costmodel.params import count_parameters
from autotuner.domain.job import TuningJob
from autotuner.domain.measurement import Environment, Failure, Measurement, StepSeconds
from autotuner.domain.outcome import RunOutcome
from autotuner.domain.parallel import ParallelConfig
from autotuner.handoff.failures import failure_of, make_failure
from trials.contract import (
    REPORT_FILE,
    REPORT_SCHEMA,
    ContractError,
    RankReport,
    RunReport,
    read_document,
)


def read_result(
    run_dir: Path, outcome: RunOutcome, *, job: TuningJob, config: ParallelConfig, run_name: str
) -> Measurement | Failure:
    """The result of an ended run. Never raises for what the run wrote.

    A report of other sizes than asked for is a failure of kind `mismatch`; a run that ended early because it was
    surely slower than `abort_above_step_seconds` is a measurement of fewer steps.
    """
    try:
        report = read_document(RunReport, run_dir / REPORT_FILE)
    except FileNotFoundError:
        return failure_of(run_dir, outcome, run_name=run_name, note="")
    except (OSError, ContractError) as error:
        note = f"{REPORT_FILE} cannot be used: {error}"
        return failure_of(run_dir, outcome, run_name=run_name, note=note[:500])
    wrong = _mismatch(report, job=job, config=config, run_name=run_name)
    if wrong:
        return make_failure(run_dir, kind="mismatch", message=wrong, rank=None)
    samples = report.step_seconds or report.warmup_step_seconds[-1:]
    if not samples or min(samples) <= 0:
        return failure_of(run_dir, outcome, run_name=run_name, note=f"{REPORT_FILE} holds no step that took any time")
    return _measurement(report, samples, job=job, config=config)


def pool(measurements: Sequence[Measurement], *, job: TuningJob) -> Measurement:
    """All runs of one trial as one measurement: every step counts alike. Raises ValueError for none.

    Peaks are the highest seen, breakdown and start-up are averages over runs, losses those of the first run.
    """
    if not measurements:
        raise ValueError("there is no measurement to pool")
    first = measurements[0]
    samples = tuple(sample for m in measurements for sample in m.samples_seconds)
    step = step_statistics(samples)
    devices = round(first.tokens_per_second / first.tokens_per_second_per_device)
    parts = {name for m in measurements for name in m.breakdown_seconds}
    return Measurement(
        step_seconds=step,
        samples_seconds=samples,
        tokens_per_second=tokens_per_second(job.workload, step_seconds=step.median),
        tokens_per_second_per_device=tokens_per_second_per_device(
            job.workload, step_seconds=step.median, num_devices=devices
        ),
        mfu=mfu(job.model, job.workload, job.cluster, step_seconds=step.median),
        peak_memory_bytes=max(m.peak_memory_bytes for m in measurements),
        peak_memory_per_stage_bytes=tuple(
            max(peaks) for peaks in zip(*(m.peak_memory_per_stage_bytes for m in measurements), strict=True)
        ),
        breakdown_seconds={
            name: statistics.fmean(m.breakdown_seconds.get(name, 0.0) for m in measurements) for name in sorted(parts)
        },
        losses=first.losses,
        startup_seconds=statistics.fmean(m.startup_seconds for m in measurements),
        runs=sum(m.runs for m in measurements),
        environment=first.environment,
    )


def step_statistics(samples: Sequence[float]) -> StepSeconds:
    """Median and spread of one or more step times, percentiles interpolated between the two nearest samples."""
    # statistics.quantiles wants two points; one sample is its own percentile.
    points = [*samples, *samples] if len(samples) == 1 else list(samples)
    deciles = statistics.quantiles(points, n=10, method="inclusive")
    return StepSeconds(
        min=min(samples), median=statistics.median(samples), p10=deciles[0], p90=deciles[-1], count=len(samples)
    )


def _mismatch(report: RunReport, *, job: TuningJob, config: ParallelConfig, run_name: str) -> str:
    """What was built beside what was asked for; empty when they agree."""
    built = report.built
    pairs: tuple[tuple[str, object, object], ...] = (
        ("schema", report.schema, REPORT_SCHEMA),
        ("run_id", report.run_id, run_name),
        ("num_layers", built.num_layers, job.model.num_layers),
        ("num_parameters", built.num_parameters, count_parameters(job.model)),
        ("tp", built.tp, config.tp),
        ("pp", built.pp, config.pp),
        ("dp", built.dp, config.dp),
        ("num_microbatches", built.num_microbatches, config.num_microbatches(job.workload.global_batch_size)),
        ("tokens_per_step", built.tokens_per_step, job.workload.tokens_per_step),
        ("ranks", sorted(rank.rank for rank in report.ranks), list(range(config.world_size))),
    )
    return "; ".join(f"{name} is {got}, asked for was {wanted}" for name, got, wanted in pairs if got != wanted)


def _measurement(
    report: RunReport, samples: tuple[float, ...], *, job: TuningJob, config: ParallelConfig
) -> Measurement:
    step = step_statistics(samples)
    return Measurement(
        step_seconds=step,
        samples_seconds=samples,
        tokens_per_second=tokens_per_second(job.workload, step_seconds=step.median),
        tokens_per_second_per_device=tokens_per_second_per_device(
            job.workload, step_seconds=step.median, num_devices=config.world_size
        ),
        mfu=mfu(job.model, job.workload, job.cluster, step_seconds=step.median),
        peak_memory_bytes=max(_peak_bytes(rank) for rank in report.ranks),
        peak_memory_per_stage_bytes=tuple(
            max((_peak_bytes(rank) for rank in report.ranks if rank.pp_rank == stage), default=0)
            for stage in range(config.pp)
        ),
        breakdown_seconds=_breakdown(report.ranks),
        losses=report.losses,
        startup_seconds=report.startup_seconds,
        environment=Environment(
            hostname=report.ranks[0].hostname,
            device_name=report.ranks[0].device_name,
            torch_version=report.environment.torch_version,
            python_version=report.environment.python_version,
            backend=report.environment.backend,
            threads_per_rank=report.environment.threads_per_rank,
        ),
    )


def _peak_bytes(rank: RankReport) -> int:
    """What the device must have room for: the allocator's reserve, which includes what fragmentation wastes."""
    return max(rank.peak_allocated_bytes, rank.peak_reserved_bytes)


def _breakdown(ranks: Sequence[RankReport]) -> dict[str, float]:
    """Seconds a step of each part, averaged over the ranks."""
    names = sorted({name for rank in ranks for name in rank.breakdown_seconds})
    return {name: statistics.fmean(rank.breakdown_seconds.get(name, 0.0) for rank in ranks) for name in names}
