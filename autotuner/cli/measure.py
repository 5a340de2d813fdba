"""`measure`, `estimate` and `probe`: figures for one machine and one job file, without a service."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from autotuner.cli.configure import make_settings
from autotuner.cli.exits import NoResult
from autotuner.cli.jobfile import read_job_file
from autotuner.cli.output import console, emit_json, say
from autotuner.cli.probing import ensure_probe, probe_and_store
from autotuner.domain.estimate import Estimate
from autotuner.domain.job import BaselineRequest
from autotuner.domain.measurement import Measurement
from autotuner.domain.units import format_bytes, format_count, format_seconds
from autotuner.operations.measure import measure_once
from autotuner.operations.resolve import with_baseline
from autotuner.wiring import TRAINER_MODULE, build_executor, build_services


def measure_layout(file: Path, layout: BaselineRequest, *, data_dir: str, as_json: bool) -> None:
    """Run one layout and print what was measured beside the estimate. Exit status 7 when it failed."""
    request = read_job_file(file).model_copy(update={"baseline": layout})
    settings = make_settings(data_dir=data_dir)
    services = build_services(settings)
    try:
        # Refused before this machine is probed, which takes seconds.
        services.operations.require_launchable(services.operations.resolve(request))
        ensure_probe(settings, database=services.database)
        spec = services.operations.resolve(request)
        config = with_baseline(spec)
        estimate = services.operations.estimate_layout(spec, config)
        say(f"measuring {config.key()} on {config.world_size} devices ...")
        result = measure_once(
            spec,
            config,
            executor=build_executor(settings),
            cores=services.machine.cores,
            module=TRAINER_MODULE,
            show=lambda p: say(f"  {p.phase} step {p.step}/{p.total_steps}"),
        )
    finally:
        services.close()
    measured = result if isinstance(result, Measurement) else None
    failure = None if isinstance(result, Measurement) else result
    if as_json:
        emit_json(
            {
                "config": config.as_json(),
                "measurement": None if measured is None else measured.as_json(),
                "failure": None if failure is None else failure.as_json(),
                "estimate": estimate.as_json(),
            }
        )
    elif measured is not None:
        console().print(_side_by_side(measured, estimate, title=config.key()))
    if failure is not None:
        raise NoResult(f"{config.key()} failed as {failure.kind}: {failure.message} {failure.hint}\n{failure.log_tail}")


def _side_by_side(measured: Measurement, estimate: Estimate, *, title: str) -> Table:
    table = Table(title=title, title_justify="left")
    for name in ("", "measured", "estimated"):
        table.add_column(name, justify="right" if name else "left")
    step = measured.step_seconds
    spread = f" (p10 {format_seconds(step.p10)}, p90 {format_seconds(step.p90)})"
    table.add_row("step", format_seconds(step.median) + spread, format_seconds(estimate.step_seconds))
    table.add_row("tokens/s", f"{measured.tokens_per_second:,.0f}", f"{estimate.tokens_per_second:,.0f}")
    table.add_row("MFU", _percent(measured.mfu), _percent(estimate.mfu))
    table.add_row("peak memory", format_bytes(measured.peak_memory_bytes), format_bytes(estimate.memory_bytes))
    for stage, peak in enumerate(measured.peak_memory_per_stage_bytes):
        table.add_row(f"  stage {stage}", format_bytes(peak), format_bytes(estimate.memory[stage].total_bytes))
    for part, seconds in measured.breakdown_seconds.items():
        table.add_row(f"  {part}", format_seconds(seconds), "")
    for part, seconds in estimate.time.as_json().items():
        table.add_row(f"  {part}", "", format_seconds(seconds))
    table.add_row("start-up", format_seconds(measured.startup_seconds), "")
    table.add_row("loss", " ".join(f"{loss:.3f}" for loss in (measured.losses[0], measured.losses[-1])), "")
    return table


def _percent(share: float | None) -> str:
    return "unknown peak" if share is None else f"{share:.1%}"


def print_estimate(file: Path, *, limit: int, data_dir: str, as_json: bool) -> None:
    """Rank the layouts of a job file by estimate."""
    request = read_job_file(file)
    services = build_services(make_settings(data_dir=data_dir))
    try:
        report = services.operations.estimate(request, limit=limit)
    finally:
        services.close()
    if as_json:
        emit_json(report.as_json())
        return
    table = Table(title=f"{report.candidates} layouts of a model with {format_count(report.parameters)} parameters")
    for name in ("layout", "step", "tokens/s", "MFU", "memory", "fits"):
        table.add_column(name, justify="left" if name == "layout" else "right", no_wrap=True)
    for line in report.ranked:
        table.add_row(
            line.key,
            format_seconds(line.step_seconds),
            f"{line.tokens_per_second:,.0f}",
            _percent(line.mfu),
            format_bytes(line.memory_bytes),
            f"{line.probability_fits:.0%}",
        )
    console().print(table)
    for rule, count in sorted(report.rejections.items(), key=lambda item: -item[1]):
        example = next((e for e in report.examples if e.rule == rule), None)
        say(f"rejected {count:,} by {rule}" + (f", for instance: {example.message}" if example else ""))


def run_probe(*, ranks: int, data_dir: str, as_json: bool) -> None:
    """Probe this machine now."""
    settings = make_settings(data_dir=data_dir)
    services = build_services(settings)
    try:
        result = probe_and_store(settings, database=services.database, ranks=ranks)
    finally:
        services.close()
    if as_json:
        emit_json(result.as_json())
    else:
        console().print_json(data=result.as_json())
