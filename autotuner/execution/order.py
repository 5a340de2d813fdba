"""From a job and a layout to the order of one run on this machine: the request, the launch and the deadlines."""

from __future__ import annotations

from pathlib import Path

from autotuner.domain.job import TuningJob
from autotuner.domain.parallel import ParallelConfig
from autotuner.execution.base import RunOrder
from autotuner.execution.devices import threads_per_rank
from autotuner.execution.rundir import RunFolder
from autotuner.handoff.request import build_request, request_text
from autotuner.handoff.support import trainer_folder
from autotuner.launch.plan import LaunchPlan


def make_order(
    job: TuningJob,
    config: ParallelConfig,
    *,
    name: str,
    run_dir: Path,
    python: str,
    module: str,
    cores: int,
    abort_above_step_seconds: float | None,
) -> RunOrder:
    """The order of one profiling run. Raises InvalidInput for a layout the trainer has no words for, LaunchRefused."""
    threads = threads_per_rank(cores=cores, ranks=config.world_size)
    request = build_request(
        job,
        config,
        run_id=name,
        steps=job.measure.steps,
        data_kind="bundled",
        abort_above_step_seconds=abort_above_step_seconds,
        threads_per_rank=threads,
    )
    plan = LaunchPlan(
        run_name=name,
        python=python,
        module=module,
        request_file=str(RunFolder(path=run_dir).request),
        run_dir=str(run_dir),
        package_root=str(trainer_folder().parent),
        nodes=1,
        processes_per_node=config.world_size,
        threads_per_rank=threads,
        device=job.cluster.device.kind,
    )
    return RunOrder(
        name=name,
        run_dir=run_dir,
        plan=plan,
        request_text=request_text(request),
        hard_seconds=job.budget.trial_timeout_seconds,
        startup_seconds=job.budget.trial_startup_seconds,
        no_progress_seconds=job.budget.trial_no_progress_seconds,
    )
