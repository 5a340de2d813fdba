"""What is read from files that a run is writing at that moment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autotuner.domain.errors import InvalidInput, NotFound
from autotuner.handoff.logs import log_tail
from autotuner.handoff.progress import read_progress
from autotuner.handoff.support import BUNDLED, capabilities_of, trainer_folder
from autotuner.handoff.tail import plain_text, read_end, steps_done
from tests.support.faults import write_progress


def test_the_last_complete_line_counts(tmp_path: Path) -> None:
    for step in range(4):
        write_progress(tmp_path, step=step, total_steps=8)
    with (tmp_path / "progress.jsonl").open("ab") as file:
        file.write(b'{"unix_seconds": 1.0, "phase": "mea')

    progress = read_progress(tmp_path)

    assert progress is not None
    assert (progress.step, progress.total_steps, progress.phase, progress.loss) == (3, 8, "measure", 2.0)
    assert steps_done(tmp_path / "progress.jsonl") == 3


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", b"garbage", b"\xff\xfe", b"[1]\n", b'{"step": "x"}\n', b"[" * 50_000]
)
def test_garbage_is_no_progress(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "progress.jsonl").write_bytes(content)

    assert read_progress(tmp_path) is None
    assert steps_done(tmp_path / "progress.jsonl") == 0


def test_no_file_is_no_progress(tmp_path: Path) -> None:
    assert read_progress(tmp_path) is None


def test_a_pipe_or_a_link_in_the_place_of_a_log_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "progress.jsonl")
    (tmp_path / "link").symlink_to("/etc/hostname")

    assert read_progress(tmp_path) is None
    assert read_end(tmp_path / "link", max_bytes=100) == b""


def test_the_end_of_a_ranks_log_is_plain_text_of_whole_lines(tmp_path: Path) -> None:
    (tmp_path / "rank-1.log").write_bytes(b"first line\n" + b"z" * 40 + b"\n\x1b]0;title\x07\x1b[1mlast\x1b[0m\r\n")

    assert log_tail(tmp_path, rank=1, max_bytes=30) == "last"


def test_a_rank_that_is_not_there_is_told_from_one_that_wrote_nothing(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for rank in (0, 1):
        (run / "logs" / "x" / "attempt_0" / str(rank)).mkdir(parents=True)
        (run / "logs" / "x" / "attempt_0" / str(rank) / "stdout.log").touch()

    assert log_tail(run, rank=1, max_bytes=100) == ""
    with pytest.raises(NotFound, match="it has ranks 0 to 1"):
        log_tail(run, rank=2, max_bytes=100)
    with pytest.raises(NotFound, match="cleaned up"):
        log_tail(tmp_path / "gone", rank=0, max_bytes=100)


def test_the_launchers_words_stand_in_until_ranks_have_logs(tmp_path: Path) -> None:
    (tmp_path / "launcher.log").write_text("No module named torch\n")

    assert log_tail(tmp_path, rank=0, max_bytes=100) == "No module named torch"


def test_holes_and_control_characters_are_left_out() -> None:
    assert plain_text(b"a\x00\x00\x08b\tc\x9b31m\xe2\x82").startswith("ab\tc")


def test_the_bundled_trainers_limits_are_known_and_no_others() -> None:
    assert capabilities_of("bundled") is BUNDLED
    with pytest.raises(InvalidInput, match="known: bundled"):
        capabilities_of("megatron")


def test_the_trainers_sources_are_found() -> None:
    assert (trainer_folder() / "contract.py").is_file()
