"""Measures one layout once, for `autotuner measure`: the same order, executor and collecting as a trial of a job."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable

from autotuner.domain.job import TuningJob
from autotuner.domain.measurement import Failure, Measurement
from autotuner.domain.outcome import RunOutcome
from autotuner.domain.parallel import ParallelConfig
from autotuner.execution.base import Executor
from autotuner.execution.order import make_order
from autotuner.handoff.progress import RunProgress, read_progress
from autotuner.handoff.report import read_result

_POLL_SECONDS = 0.1


def measure_once(
    job: TuningJob,
    config: ParallelConfig,
    *,
    executor: Executor,
    cores: int,
    module: str,
    show: Callable[[RunProgress], None],
) -> Measurement | Failure:
    """Run, wait, read the result; an interruption ends the run before it is passed on. Raises LaunchRefused."""
    name = f"measure-{uuid.uuid4().hex[:12]}"
    order = make_order(
        job,
        config,
        name=name,
        run_dir=executor.run_dir(name),
        python=sys.executable,
        module=module,
        cores=cores,
        abort_above_step_seconds=None,
    )
    executor.submit(order)
    try:
        outcome = _wait(executor, name, show=show)
    except BaseException:
        executor.cancel(name)
        executor.wait_ended([name], timeout_seconds=30.0)
        raise
    return read_result(executor.run_dir(name), outcome, job=job, config=config, run_name=name)


def _wait(executor: Executor, name: str, *, show: Callable[[RunProgress], None]) -> RunOutcome:
    """Until the run ended; the runner's own deadlines see to it that it does."""
    shown = -1
    while True:
        status = executor.poll([name])[name]
        if status.outcome is not None:
            return status.outcome
        progress = read_progress(executor.run_dir(name))
        if progress is not None and progress.step != shown:
            shown = progress.step
            show(progress)
        time.sleep(_POLL_SECONDS)
