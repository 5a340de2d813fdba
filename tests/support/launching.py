"""Jobs, orders and a starter without torch for tests that run real processes."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

from autotuner.domain.cluster import ClusterSpec, DeviceSpec, LinkSpec, PeakFlops
from autotuner.domain.job import TuningJob
from autotuner.domain.launcher import LauncherSpec
from autotuner.domain.model import ModelSpec
from autotuner.domain.objective import Budget, MeasurePlan
from autotuner.domain.outcome import RankExit
from autotuner.domain.parallel import ParallelConfig
from autotuner.domain.space import SearchSpace
from autotuner.domain.workload import Workload
from autotuner.execution.base import RunOrder
from autotuner.execution.order import make_order
from autotuner.execution.processes import tagged
from autotuner.execution.rundir import TAG_FOLDER
from autotuner.launch.plan import Command, LaunchPlan, rank_arguments
from tests.support.faults import FAULT, FAULT_RANK, MODULE

CONFIG = ParallelConfig(tp=1, pp=2, dp=1, micro_batch_size=2)


def tiny_job(*, name: str = "a job", devices: int = 2) -> TuningJob:
    """2 layers of 32, byte vocabulary, 4 sequences of 16 tokens a step, fp32 on CPU devices of 1 GiB and 1 GFLOP/s."""
    link = LinkSpec(bandwidth_bytes_per_second=1e9)
    device = DeviceSpec(
        name="core",
        kind="cpu",
        memory_bytes=2**30,
        peak_flops=PeakFlops(fp32=1e9),
        memory_bandwidth_bytes_per_second=1e10,
    )
    return TuningJob(
        name=name,
        model=ModelSpec(name="tiny", num_layers=2, hidden_size=32, num_heads=4, vocab_size=256, max_seq_len=16),
        workload=Workload(seq_len=16, global_batch_size=4, precision="fp32"),
        cluster=ClusterSpec(devices_per_node=devices, device=device, intra_node=link, inter_node=link),
        space=SearchSpace(),
        baseline=None,
        framework="bundled",
        objective="tokens_per_second",
        budget=Budget(trial_timeout_seconds=60.0, trial_startup_seconds=60.0, trial_no_progress_seconds=60.0),
        strategy="default",
        seed=1,
        measure=MeasurePlan(warmup_steps=2, steps=6),
        launcher=LauncherSpec(),
    )


class Gang:
    """Starts ranks without torchrun: quick, and as little forgiving (ranks in sessions of their own)."""

    def command(self, plan: LaunchPlan) -> Command:
        """The gang of `tests.support.faults`, each rank running what torchrun's ranks run."""
        ranks = str(plan.processes_per_node)
        argv = (plan.python, "-m", MODULE, "--gang", ranks, plan.python, *rank_arguments(plan))
        return Command(argv=argv, env=plan.env, package_root=plan.package_root)

    def rank_exits(self, log_text: str) -> tuple[RankExit, ...]:
        """Read back what the gang prints."""
        found = re.findall(r"^rank (\d+) ended with (-?\d+)$", log_text, flags=re.MULTILINE)
        return tuple(
            RankExit(rank=int(r), exit_code=int(c) if int(c) > 0 else None, signal=-int(c) if int(c) < 0 else None)
            for r, c in found
        )


def fault_order(
    run_dir: Path,
    fault: str,
    *,
    only_rank: int | None = None,
    config: ParallelConfig = CONFIG,
    python: str = sys.executable,
    **deadlines: float,
) -> RunOrder:
    """An order whose ranks show the fault; the behaviour goes through the plan's environment."""
    order = make_order(
        tiny_job(devices=config.world_size),
        config,
        name=run_dir.name,
        run_dir=run_dir,
        python=python,
        module=MODULE,
        cores=2,
        abort_above_step_seconds=None,
    )
    env = [(FAULT, fault)] + ([] if only_rank is None else [(FAULT_RANK, str(only_rank))])
    fields = {f: getattr(order.plan, f) for f in order.plan.__dataclass_fields__}
    plan = LaunchPlan(**{**fields, "env": tuple(env)})
    fields = {f: getattr(order, f) for f in order.__dataclass_fields__}
    return RunOrder(**{**fields, "plan": plan, **deadlines})


def tagged_pids(runs_root: Path) -> list[int]:
    """Every living process of any run below this root."""
    return [process.pid for process, path in tagged(TAG_FOLDER) if Path(path).parent == runs_root]


def wait_until(condition, *, what: str, timeout_seconds: float = 30.0) -> None:
    """Poll until it is true; fails with `what` when the time is up."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        assert time.monotonic() < deadline, f"still not true after {timeout_seconds} s: {what}"
        time.sleep(0.02)
