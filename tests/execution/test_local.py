"""The executor's rules: names, adoption after a restart, cleaning, and what a run gets to see."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotuner.domain.errors import Conflict, InvalidInput, LaunchRefused
from autotuner.execution.local import LocalExecutor
from autotuner.execution.processes import tagged
from autotuner.execution.rundir import TAG_NAME, RunFolder, write_json
from tests.support.launching import Gang, fault_order, tagged_pids, wait_until


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[LocalExecutor]:
    made = LocalExecutor(tmp_path / "runs", starter=Gang())
    yield made
    made.kill_strays(())


def submit(executor: LocalExecutor, name: str, fault: str) -> None:
    executor.submit(fault_order(executor.run_dir(name), fault))


def test_a_known_name_is_not_started_again(executor: LocalExecutor) -> None:
    submit(executor, "r1", "sleep")
    first = RunFolder(path=executor.run_dir("r1")).runner()

    submit(executor, "r1", "succeed")

    assert RunFolder(path=executor.run_dir("r1")).runner() == first
    assert executor.poll(["r1"])["r1"].phase == "starting"


def test_one_poll_answers_for_every_name(executor: LocalExecutor) -> None:
    submit(executor, "sleeps", "sleep")
    submit(executor, "ends", "no-report")
    assert executor.wait_ended(["ends"], timeout_seconds=30) == ()

    statuses = executor.poll(["sleeps", "ends", "never-heard-of"])

    assert {name: status.phase for name, status in statuses.items()} == {
        "sleeps": "starting",
        "ends": "ended",
        "never-heard-of": "unknown",
    }


def test_waiting_has_a_limit_and_names_what_still_runs(executor: LocalExecutor) -> None:
    submit(executor, "r1", "sleep")

    assert executor.wait_ended(["r1", "unheard-of"], timeout_seconds=0.2) == ("r1",)


def test_another_executor_on_the_same_folder_adopts_the_run(executor: LocalExecutor, tmp_path: Path) -> None:
    submit(executor, "r1", "sleep")

    after_restart = LocalExecutor(tmp_path / "runs", starter=Gang())

    assert after_restart.poll(["r1"])["r1"].phase == "starting"
    after_restart.cancel("r1")
    assert after_restart.wait_ended(["r1"], timeout_seconds=30) == ()
    assert executor.poll(["r1"])["r1"] == after_restart.poll(["r1"])["r1"]


def test_a_supervisor_of_an_earlier_boot_is_dead_even_if_its_number_lives(executor: LocalExecutor) -> None:
    folder = RunFolder(path=executor.run_dir("r1"))
    folder.path.mkdir(parents=True)
    write_json(folder.path / "runner.json", {"pid": os.getpid(), "start_ticks": 1, "boot_id": "another"})
    assert executor.poll(["r1"])["r1"].phase == "ended"

    folder = RunFolder(path=executor.run_dir("r2"))
    folder.path.mkdir()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    # This very process lives under that number, but started at another time.
    write_json(folder.path / "runner.json", {"pid": os.getpid(), "start_ticks": 1, "boot_id": boot})

    outcome = executor.poll(["r2"])["r2"].outcome
    assert outcome is not None
    assert outcome.reason == "supervisor_died"


@pytest.mark.parametrize("content", ["{", "[]", '{"reason": "sunshine"}', '{"reason": "exited", "new": 1}'])
def test_an_outcome_that_cannot_be_read_loses_the_run_and_raises_nothing(executor: LocalExecutor, content: str) -> None:
    folder = RunFolder(path=executor.run_dir("r1"))
    folder.path.mkdir(parents=True)
    folder.outcome.write_text(content)
    write_json(folder.path / "runner.json", {})

    outcome = executor.poll(["r1"])["r1"].outcome

    assert outcome is not None
    assert outcome.reason == "supervisor_died"


def test_strays_are_killed_and_known_runs_are_not(executor: LocalExecutor, tmp_path: Path) -> None:
    submit(executor, "stray", "ignore-sigterm")
    submit(executor, "known", "sleep")
    elsewhere = LocalExecutor(tmp_path / "other service", starter=Gang())
    submit(elsewhere, "stray", "sleep")
    # Supervisor, gang and two ranks in each of the two runs.
    wait_until(lambda: len(tagged_pids(tmp_path / "runs")) == 8, what="all processes have started")

    killed = executor.kill_strays({"known"})

    assert killed == 4
    assert executor.poll(["known"])["known"].phase == "starting"
    assert elsewhere.poll(["stray"])["stray"].phase == "starting"
    assert elsewhere.kill_strays(()) >= 2


def test_a_run_sees_nothing_of_the_services_environment(
    executor: LocalExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNER_DATABASE_URL", "postgresql://user:secret@host/db")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("LD_PRELOAD_NOT", "secret")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    submit(executor, "r1", "environment")
    supervisors = [process for process, _ in tagged(TAG_NAME)]
    assert supervisors
    assert executor.wait_ended(["r1"], timeout_seconds=30) == ()

    folder = executor.run_dir("r1")
    seen = json.loads((folder / "environment.json").read_text())

    assert seen["AUTOTUNER_RUN"] == "r1"
    assert seen["LC_ALL"] == "C.UTF-8"
    assert not [name for name, value in seen.items() if "secret" in value]
    assert "secret" not in (folder / "order.json").read_text()


def test_a_runs_files_are_private(executor: LocalExecutor) -> None:
    submit(executor, "r1", "succeed")
    assert executor.wait_ended(["r1"], timeout_seconds=30) == ()

    folder = executor.run_dir("r1")

    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o077 for path in folder.glob("*.json")}.keys() >= {"outcome.json"}
    assert [path.name for path in folder.iterdir() if path.stat().st_mode & 0o077] == []


def test_release_waits_for_the_end_and_keeps_the_logs(executor: LocalExecutor) -> None:
    submit(executor, "r1", "sleep")
    with pytest.raises(Conflict, match="still runs"):
        executor.release("r1")
    executor.cancel("r1")
    executor.wait_ended(["r1"], timeout_seconds=30)

    executor.release("r1")
    executor.release("r1")
    executor.release("unheard-of")

    assert (executor.run_dir("r1") / "launcher.log").exists()
    assert executor.poll(["r1"])["r1"].phase == "ended"


def test_cancelling_what_does_not_run_is_no_error(executor: LocalExecutor) -> None:
    executor.cancel("unheard-of")
    submit(executor, "r1", "no-report")
    executor.wait_ended(["r1"], timeout_seconds=30)

    executor.cancel("r1")

    outcome = executor.poll(["r1"])["r1"].outcome
    assert outcome is not None
    assert outcome.reason == "exited"


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "-x", "a b", "x\n", "a" * 129, ".hidden"])
def test_a_name_that_could_leave_the_folder_is_refused(executor: LocalExecutor, name: str) -> None:
    with pytest.raises(InvalidInput):
        executor.run_dir(name)
    with pytest.raises(InvalidInput):
        executor.poll([name])


def test_an_order_for_another_folder_is_refused(executor: LocalExecutor, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="belongs into"):
        executor.submit(fault_order(tmp_path / "r1", "succeed"))


def test_a_folder_that_cannot_be_made_refuses_the_launch(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    executor = LocalExecutor(tmp_path / "runs", starter=Gang())

    with pytest.raises(LaunchRefused, match="cannot be made"):
        executor.submit(fault_order(executor.run_dir("r1"), "succeed"))
