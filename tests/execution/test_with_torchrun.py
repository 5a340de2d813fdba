"""The reference way of starting ranks: torchrun itself, with a stand-in for the trainer and with the trainer."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotuner.domain.measurement import Failure, Measurement
from autotuner.execution.local import LocalExecutor
from autotuner.execution.order import make_order
from autotuner.handoff.logs import log_tail
from autotuner.handoff.report import read_result
from tests.support.launching import CONFIG, fault_order, tagged_pids, tiny_job, wait_until

pytestmark = pytest.mark.trainer


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[LocalExecutor]:
    made = LocalExecutor(tmp_path / "runs")
    yield made
    made.kill_strays(())


def finished(executor: LocalExecutor) -> Measurement | Failure:
    assert executor.wait_ended(["r1"], timeout_seconds=100) == ()
    outcome = executor.poll(["r1"])["r1"].outcome
    assert outcome is not None
    root = executor.run_dir("r1").parent
    wait_until(lambda: tagged_pids(root) == [], what="no process of the run is left", timeout_seconds=5)
    return read_result(executor.run_dir("r1"), outcome, job=tiny_job(), config=CONFIG, run_name="r1")


def test_a_killed_rank_is_told_from_those_that_torchrun_ended(executor: LocalExecutor) -> None:
    executor.submit(fault_order(executor.run_dir("r1"), "kill", only_rank=1))

    got = finished(executor)

    assert isinstance(got, Failure)
    assert (got.kind, got.rank) == ("crash", 1)
    assert "SIGKILL" in got.message


def test_ranks_in_sessions_of_their_own_that_ignore_sigterm_end_with_the_run(executor: LocalExecutor) -> None:
    executor.submit(fault_order(executor.run_dir("r1"), "ignore-sigterm"))
    wait_until(lambda: executor.poll(["r1"])["r1"].phase == "running", what="the run does steps")

    executor.cancel("r1")

    got = finished(executor)
    assert isinstance(got, Failure)
    assert got.kind == "cancelled"


def test_ranks_get_the_arguments_that_the_plan_shows(executor: LocalExecutor) -> None:
    order = fault_order(executor.run_dir("r1"), "environment")
    executor.submit(order)
    assert isinstance(finished(executor), Measurement)

    argv = json.loads((order.run_dir / "argv.json").read_text())
    env = json.loads((order.run_dir / "environment.json").read_text())

    assert argv[1:] == [order.plan.request_file, "--run-dir", order.plan.run_dir]
    assert (env["WORLD_SIZE"], env["MASTER_ADDR"], env["OMP_NUM_THREADS"]) == ("2", "127.0.0.1", "1")
    assert log_tail(order.run_dir, rank=1, max_bytes=1000) == "rank 1 is done"


def test_the_trainer_measures_two_ranks(executor: LocalExecutor) -> None:
    order = make_order(
        tiny_job(),
        CONFIG,
        name="r1",
        run_dir=executor.run_dir("r1"),
        python=sys.executable,
        module="trials.run",
        cores=2,
        abort_above_step_seconds=None,
    )
    executor.submit(order)

    got = finished(executor)

    assert isinstance(got, Measurement), got
    assert got.step_seconds.count == 6
    # 2 + 6 steps of a model that has learned a little: the loss of random bytes is ln 256 = 5.55.
    assert len(got.losses) == 8
    assert got.losses[-1] < got.losses[0] < 5.6
