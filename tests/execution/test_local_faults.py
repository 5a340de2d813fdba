"""Whatever ranks do, their run ends with a reason and no process of it is left. Real processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotuner.domain.measurement import Failure, Measurement
from autotuner.domain.outcome import RunOutcome
from autotuner.execution.local import LocalExecutor
from autotuner.execution.processes import identify
from autotuner.execution.rundir import RunFolder
from autotuner.handoff.report import read_result
from tests.support.launching import CONFIG, Gang, fault_order, tagged_pids, tiny_job, wait_until


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[LocalExecutor]:
    made = LocalExecutor(tmp_path / "runs", starter=Gang())
    yield made
    made.kill_strays(())


def submit(executor: LocalExecutor, fault: str, **options: object) -> str:
    executor.submit(fault_order(executor.run_dir("r1"), fault, **options))
    return "r1"


def finished(executor: LocalExecutor, name: str = "r1") -> RunOutcome:
    """Wait for the end; then nothing of the run may live."""
    assert executor.wait_ended([name], timeout_seconds=60) == ()
    outcome = executor.poll([name])[name].outcome
    assert outcome is not None
    root = executor.run_dir(name).parent
    # The supervisor itself ends a moment after it has written the outcome.
    wait_until(lambda: tagged_pids(root) == [], what="no process of the run is left", timeout_seconds=5)
    return outcome


def result(executor: LocalExecutor, outcome: RunOutcome) -> Measurement | Failure:
    return read_result(executor.run_dir("r1"), outcome, job=tiny_job(), config=CONFIG, run_name="r1")


def failure(executor: LocalExecutor, outcome: RunOutcome) -> Failure:
    got = result(executor, outcome)
    assert isinstance(got, Failure)
    return got


def test_a_run_that_succeeds_is_measured(executor: LocalExecutor) -> None:
    submit(executor, "succeed")

    outcome = finished(executor)

    assert (outcome.reason, outcome.exit_code) == ("exited", 0)
    assert isinstance(result(executor, outcome), Measurement)


def test_a_killed_rank_is_a_crash_that_names_it(executor: LocalExecutor) -> None:
    submit(executor, "kill", only_rank=1)

    got = failure(executor, finished(executor))

    assert (got.kind, got.rank) == ("crash", 1)
    assert "SIGKILL" in got.message


def test_a_rank_that_runs_into_its_memory_limit_is_out_of_memory(executor: LocalExecutor) -> None:
    submit(executor, "allocate", only_rank=0)

    got = failure(executor, finished(executor))

    assert (got.kind, got.rank) == ("out_of_memory", 0)


@pytest.mark.parametrize("fault", ["half-report", "no-report"])
def test_exit_code_0_without_a_report_is_a_crash(executor: LocalExecutor, fault: str) -> None:
    submit(executor, fault)

    outcome = finished(executor)

    assert outcome.exit_code == 0
    assert failure(executor, outcome).kind == "crash"


def test_ranks_that_never_do_a_step_hang(executor: LocalExecutor) -> None:
    submit(executor, "sleep", startup_seconds=0.5)

    outcome = finished(executor)

    assert outcome.reason == "startup_deadline"
    assert failure(executor, outcome).kind == "hang"


def test_ranks_that_stop_doing_steps_hang(executor: LocalExecutor) -> None:
    submit(executor, "stall", no_progress_seconds=0.5)

    outcome = finished(executor)

    assert outcome.reason == "no_progress"
    assert "after step 3" in outcome.message


def test_ranks_that_go_on_for_ever_time_out(executor: LocalExecutor) -> None:
    submit(executor, "tick", hard_seconds=1.5, no_progress_seconds=30.0)

    outcome = finished(executor)

    assert outcome.reason == "hard_deadline"
    assert failure(executor, outcome).kind == "timeout"


def test_cancelling_ends_ranks_that_ignore_sigterm(executor: LocalExecutor) -> None:
    submit(executor, "ignore-sigterm")
    wait_until(lambda: executor.poll(["r1"])["r1"].phase == "running", what="the run does steps")

    executor.cancel("r1")

    outcome = finished(executor)
    assert outcome.reason == "cancelled"
    assert failure(executor, outcome).kind == "cancelled"


def test_a_daemonised_grandchild_ends_with_its_run(executor: LocalExecutor) -> None:
    submit(executor, "daemonise")

    outcome = finished(executor)

    grandchild = int((executor.run_dir("r1") / "grandchild-0").read_text())
    assert identify(grandchild) is None
    assert isinstance(result(executor, outcome), Measurement)


def test_ranks_do_not_survive_their_supervisor(executor: LocalExecutor) -> None:
    submit(executor, "ignore-sigterm")
    wait_until(lambda: executor.poll(["r1"])["r1"].phase == "running", what="the run does steps")
    runner = RunFolder(path=executor.run_dir("r1")).runner()
    assert runner is not None

    os.kill(runner.pid, signal.SIGKILL)

    outcome = finished(executor)
    assert outcome.reason == "supervisor_died"
    assert failure(executor, outcome).kind == "lost"
    # It was written down: whoever asks later hears the same.
    assert executor.poll(["r1"])["r1"].outcome == outcome


def test_the_kernel_ends_the_launcher_with_its_supervisor(executor: LocalExecutor) -> None:
    submit(executor, "sleep")
    root = executor.run_dir("r1").parent
    # Supervisor, gang and two ranks.
    wait_until(lambda: len(tagged_pids(root)) == 4, what="all processes have started")
    runner = RunFolder(path=executor.run_dir("r1")).runner()
    assert runner is not None

    os.kill(runner.pid, signal.SIGKILL)

    # Nobody polls: ranks that listen to SIGTERM end without the executor's help.
    wait_until(lambda: tagged_pids(root) == [], what="the ranks ended by themselves")


def test_a_run_whose_folder_is_removed_ends(executor: LocalExecutor) -> None:
    submit(executor, "remove-folder", only_rank=0)
    root = executor.run_dir("r1").parent

    wait_until(lambda: not executor.run_dir("r1").exists(), what="the rank removed the folder")

    wait_until(lambda: tagged_pids(root) == [], what="no process of the run is left")
    assert executor.poll(["r1"])["r1"].phase == "unknown"


def test_a_flood_of_output_takes_bounded_space_and_keeps_both_ends(executor: LocalExecutor) -> None:
    submit(executor, "print-much", only_rank=0)

    wait_until((executor.run_dir("r1") / "report.json").exists, what="rank 0 is done")
    executor.cancel("r1")
    finished(executor)

    log = executor.run_dir("r1") / "launcher.log"
    # One rank wrote 24 MiB.
    assert log.stat().st_size > 24 * 2**20
    assert log.stat().st_blocks * 512 <= 8 * 2**20
    content = log.read_bytes()
    assert content.startswith(b"the first line")
    assert b"the last line" in content[-200:]


def test_an_interpreter_that_does_not_exist_is_a_launch_error(executor: LocalExecutor) -> None:
    submit(executor, "succeed", python="/nowhere/python")

    outcome = finished(executor)

    assert outcome.reason == "not_started"
    got = failure(executor, outcome)
    assert got.kind == "launch_error"
    assert "/nowhere/python" in got.message
