"""The small parts of supervision, without a run."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotuner.domain.errors import InvalidInput
from autotuner.execution import runner
from autotuner.execution.devices import threads_per_rank, usable_cores
from autotuner.execution.environment import allowed
from autotuner.execution.logcap import cap_logs
from autotuner.execution.processes import ProcessId, descendants, identify, is_alive, kill_all, send, tagged
from autotuner.execution.rundir import Instructions, read_json, write_json
from autotuner.execution.watch import Watch
from tests.support.faults import write_progress
from tests.support.launching import CONFIG, fault_order, wait_until

INSTRUCTIONS = Instructions(
    name="r1",
    argv=[],
    env={},
    hard_seconds=100.0,
    startup_seconds=10.0,
    no_progress_seconds=5.0,
    grace_seconds=1.0,
    max_log_bytes=1000,
)


def sleeper(**env: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"], env={**os.environ, **env})


def test_the_start_up_deadline_counts_until_the_first_step(tmp_path: Path) -> None:
    watch = Watch(INSTRUCTIONS, progress=tmp_path / "progress.jsonl", now=1000.0)
    write_progress(tmp_path, step=0, total_steps=8)

    assert watch.broken_deadline(1010.0) is None
    reason, message = watch.broken_deadline(1010.1) or ("", "")
    assert (reason, message) == ("startup_deadline", "no step was done within 10 s of the start")


def test_the_no_progress_deadline_starts_anew_with_each_step(tmp_path: Path) -> None:
    watch = Watch(INSTRUCTIONS, progress=tmp_path / "progress.jsonl", now=0.0)
    write_progress(tmp_path, step=1, total_steps=8)
    assert watch.broken_deadline(9.0) is None
    write_progress(tmp_path, step=2, total_steps=8)
    assert watch.broken_deadline(13.9) is None

    # Step 2 was seen at 13.9.
    assert watch.broken_deadline(18.9) is None
    assert (watch.broken_deadline(19.0) or ("", ""))[0] == "no_progress"


def test_the_hard_deadline_counts_over_all(tmp_path: Path) -> None:
    watch = Watch(INSTRUCTIONS, progress=tmp_path / "progress.jsonl", now=0.0)
    write_progress(tmp_path, step=1, total_steps=8)

    assert (watch.broken_deadline(100.1) or ("", ""))[0] == "hard_deadline"


def test_a_log_that_is_too_large_loses_its_middle(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_bytes(b"head" + b"." * 2**20 + b"tail")

    cap_logs([log, tmp_path / "missing.log"], max_bytes=64 * 1024)

    content = log.read_bytes()
    assert len(content) == 2**20 + 8
    assert content[:4] == b"head"
    assert content[-4:] == b"tail"
    # A quarter of 64 KiB at each end, in whole blocks of 4 KiB.
    assert log.stat().st_blocks * 512 <= 40 * 1024


def test_a_log_within_its_limit_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_bytes(b"." * 50_000)

    cap_logs([log], max_bytes=64 * 1024)

    assert log.read_bytes() == b"." * 50_000


def test_a_process_is_found_below_its_parent_and_by_its_tag() -> None:
    child = sleeper(TESTS_TAG="here")
    try:
        me = identify(child.pid)
        assert me is not None
        assert me in descendants(os.getpid())
        wait_until(lambda: (me, "here") in list(tagged("TESTS_TAG")), what="the tag can be seen after exec")
        assert not [value for _, value in tagged("TESTS_TA")]
    finally:
        child.kill()
        child.wait()
    assert identify(child.pid) is None


def test_a_process_that_only_has_the_same_number_is_left_alone() -> None:
    child = sleeper()
    try:
        real = identify(child.pid)
        assert real is not None
        other = ProcessId(real.pid, real.start_ticks - 1)

        assert not is_alive(other)
        assert not send(other, runner.signal.SIGKILL)
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def test_killing_gives_up_on_what_does_not_die() -> None:
    # A process that exists for ever as far as the finder says.
    ghost = ProcessId(2**22 + 1, 1)

    killed, left = kill_all(lambda: [ghost], timeout_seconds=0.1)

    assert (killed, left) == (set(), [ghost])


def test_an_outcome_is_written_once_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_WRITE_PAUSE_SECONDS", 0.0)
    rooms: list[str] = []

    def write() -> None:
        if len(rooms) < 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_json(tmp_path / "outcome.json", {"reason": "exited"})

    runner._persist(write, make_room=lambda: rooms.append("made"))

    assert rooms == ["made", "made"]
    assert read_json(tmp_path / "outcome.json") == {"reason": "exited"}


def test_a_disk_that_stays_full_is_an_error_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_WRITE_PAUSE_SECONDS", 0.0)

    def write() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        runner._persist(write, make_room=lambda: None)


def test_a_document_that_cannot_be_written_leaves_nothing_half_written(tmp_path: Path) -> None:
    (tmp_path / "x.json").mkdir()

    with pytest.raises(OSError, match="directory"):
        write_json(tmp_path / "x.json", {"a": 1})

    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_the_supervisor_imports_the_standard_library_only() -> None:
    # What it imports decides how long every trial waits for its start.
    code = (
        "import sys; import autotuner.execution.runner as r; print('pydantic' in sys.modules, 'asyncio' in sys.modules)"
    )

    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.split() == ["False", "False"]


@pytest.mark.parametrize(("cores", "ranks", "threads"), [(8, 2, 4), (8, 3, 2), (2, 4, 1), (1, 1, 1)])
def test_ranks_share_the_cores_and_never_get_less_than_one(cores: int, ranks: int, threads: int) -> None:
    assert threads_per_rank(cores=cores, ranks=ranks) == threads


def test_no_cores_cannot_be_shared() -> None:
    with pytest.raises(InvalidInput, match="0 cores"):
        threads_per_rank(cores=0, ranks=2)
    assert usable_cores() >= 1


def test_only_listed_variables_are_passed_on() -> None:
    environment = {"PATH": "/bin", "LC_TIME": "C", "PYTHONPATH": "/x", "LD_PRELOAD": "/x.so", "MY_TOKEN": "t"}

    assert allowed(environment) == {"PATH": "/bin", "LC_TIME": "C"}


def test_an_order_holds_the_deadlines_and_the_ranks_of_its_job(tmp_path: Path) -> None:
    order = fault_order(tmp_path / "r1", "sleep", config=CONFIG)

    assert (order.name, order.hard_seconds, order.startup_seconds, order.no_progress_seconds) == (
        "r1",
        60.0,
        60.0,
        60.0,
    )
    assert (order.plan.world_size, order.plan.threads_per_rank) == (2, 1)
    assert order.plan.request_file == str(tmp_path / "r1" / "request.json")
    assert '"run_id": "r1"' in order.request_text
