"""From what a run left behind to a measurement or a failure, in order of trust."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autotuner.domain.measurement import Failure, Measurement
from autotuner.domain.outcome import RankExit, RunOutcome
from autotuner.handoff.report import pool, read_result, step_statistics
from autotuner.handoff.request import build_request
from tests.support.faults import rank_failure, valid_report
from tests.support.launching import CONFIG, tiny_job
from trials.contract import REPORT_FILE, RunReport, failure_file, write_document

EXITED = RunOutcome(reason="exited", exit_code=1)
SAMPLES = (0.4, 0.6, 0.5, 0.7, 0.8)


def report(**changes: object) -> RunReport:
    request = build_request(
        tiny_job(),
        CONFIG,
        run_id="r1",
        steps=5,
        data_kind="bundled",
        abort_above_step_seconds=None,
        threads_per_rank=1,
    )
    return replace(valid_report(request, step_seconds=SAMPLES), **changes)


def result(run_dir: Path, outcome: RunOutcome = EXITED) -> Measurement | Failure:
    return read_result(run_dir, outcome, job=tiny_job(), config=CONFIG, run_name="r1")


def failure(run_dir: Path, outcome: RunOutcome = EXITED) -> Failure:
    got = result(run_dir, outcome)
    assert isinstance(got, Failure)
    assert got.hint
    return got


def rank_says(run_dir: Path, rank: int, kind: str, message: str, *, at: float, run_id: str = "r1") -> None:
    document = rank_failure(run_id=run_id, rank=rank, kind=kind, message=message, unix_seconds=at)
    write_document(run_dir / failure_file(rank), document)


def test_a_complete_report_is_measured_by_its_median(tmp_path: Path) -> None:
    write_document(tmp_path / REPORT_FILE, report())

    got = result(tmp_path)

    assert isinstance(got, Measurement)
    # Sorted 0.4 0.5 0.6 0.7 0.8: median 0.6; p10 lies 0.4 of the way from the first to the second, 0.44; p90 0.76.
    assert got.step_seconds.median == pytest.approx(0.6)
    assert (got.step_seconds.p10, got.step_seconds.p90) == (pytest.approx(0.44), pytest.approx(0.76))
    # 4 sequences of 16 tokens in 0.6 s on 2 devices.
    assert got.tokens_per_second == pytest.approx(64 / 0.6)
    assert got.tokens_per_second_per_device == pytest.approx(32 / 0.6)
    # Rank 1 is stage 1; the reserve (2000 and 2001) is more than what was allocated (1000 and 1001).
    assert got.peak_memory_per_stage_bytes == (2000, 2001)
    assert got.peak_memory_bytes == 2001
    # 0.1 s on rank 0 and 0.2 s on rank 1.
    assert got.breakdown_seconds["forward"] == pytest.approx(0.15)


def test_a_complete_report_outweighs_how_the_processes_ended(tmp_path: Path) -> None:
    write_document(tmp_path / REPORT_FILE, report())
    rank_says(tmp_path, 0, "crash", "torn down badly", at=1.0)

    assert isinstance(result(tmp_path, RunOutcome(reason="hard_deadline")), Measurement)


def test_a_run_that_ended_early_because_it_was_slow_is_a_measurement_of_fewer_steps(tmp_path: Path) -> None:
    write_document(tmp_path / REPORT_FILE, report(ended="aborted_slow", step_seconds=()))

    got = result(tmp_path)

    # It was ended during warm-up: the last warm-up step is all there is.
    assert isinstance(got, Measurement)
    assert got.samples_seconds == (0.9,)


@pytest.mark.parametrize(
    ("field", "value"),
    [("num_layers", 3), ("num_parameters", 1), ("tp", 2), ("num_microbatches", 1), ("tokens_per_step", 63)],
)
def test_a_report_of_something_else_is_a_mismatch_that_names_the_figure(tmp_path: Path, field: str, value: int) -> None:
    good = report()
    write_document(tmp_path / REPORT_FILE, replace(good, built=replace(good.built, **{field: value})))

    got = failure(tmp_path)

    assert got.kind == "mismatch"
    assert got.message.startswith(f"{field} is {value}, asked for was")


def test_the_report_of_another_run_is_a_mismatch(tmp_path: Path) -> None:
    write_document(tmp_path / REPORT_FILE, report(run_id="r0"))

    assert failure(tmp_path).message == "run_id is r0, asked for was r1"


@pytest.mark.parametrize("text", ["", "{", '{"schema": 1}', "[" * 100_000, "null", '{"step_seconds": [NaN]}'])
def test_a_broken_report_is_a_crash_that_says_so(tmp_path: Path, text: str) -> None:
    (tmp_path / REPORT_FILE).write_text(text)

    got = failure(tmp_path, RunOutcome(reason="exited", exit_code=0))

    assert got.kind == "crash"
    assert "report.json cannot be used" in got.message


def test_the_earliest_of_several_failures_is_the_cause(tmp_path: Path) -> None:
    rank_says(tmp_path, 0, "crash", "later", at=20.0)
    rank_says(tmp_path, 1, "diverged", "loss is nan", at=10.0)

    got = failure(tmp_path)

    assert (got.kind, got.rank, got.message) == ("diverged", 1, "rank 1: loss is nan")


def test_out_of_memory_outranks_the_neighbours_closed_connections(tmp_path: Path) -> None:
    rank_says(tmp_path, 0, "crash", "Connection closed by peer [127.0.0.1]:3", at=1.0)
    rank_says(tmp_path, 1, "out_of_memory", "can't allocate memory", at=2.0)

    got = failure(tmp_path)

    assert (got.kind, got.rank) == ("out_of_memory", 1)


def test_a_killed_rank_outranks_the_neighbours_closed_connections(tmp_path: Path) -> None:
    rank_says(tmp_path, 0, "crash", "Connection closed by peer [127.0.0.1]:3", at=1.0)
    exits = (RankExit(rank=1, exit_code=None, signal=9), RankExit(rank=0, exit_code=1, signal=None))

    got = failure(tmp_path, EXITED.model_copy(update={"rank_exits": exits}))

    assert (got.kind, got.rank) == ("crash", 1)
    assert got.message == "rank 1 was killed (SIGKILL), perhaps out of memory"


def test_a_neighbours_closed_connection_is_told_when_nothing_better_is_known(tmp_path: Path) -> None:
    rank_says(tmp_path, 0, "crash", "Connection closed by peer", at=1.0)

    assert failure(tmp_path).message == "rank 0: Connection closed by peer"


def test_a_kill_with_the_kernels_word_for_it_is_out_of_host_memory(tmp_path: Path) -> None:
    exits = (RankExit(rank=1, exit_code=None, signal=9),)

    got = failure(tmp_path, EXITED.model_copy(update={"rank_exits": exits, "oom_kills": 1}))

    assert got.kind == "host_out_of_memory"


def test_failures_of_another_run_are_not_ours(tmp_path: Path) -> None:
    rank_says(tmp_path, 0, "out_of_memory", "old", at=1.0, run_id="r0")

    assert failure(tmp_path).kind == "crash"


def test_garbage_instead_of_a_failure_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / failure_file(0)).write_text("{")
    (tmp_path / failure_file(1)).mkdir()

    assert failure(tmp_path).kind == "crash"


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("hard_deadline", "timeout"),
        ("startup_deadline", "hang"),
        ("no_progress", "hang"),
        ("supervisor_died", "lost"),
        ("not_started", "launch_error"),
        ("cancelled", "cancelled"),
    ],
)
def test_each_end_without_a_word_of_the_ranks_has_its_kind(tmp_path: Path, reason: str, kind: str) -> None:
    outcome = RunOutcome.from_json({"reason": reason, "message": "because"})

    assert (failure(tmp_path, outcome).kind, failure(tmp_path, outcome).message) == (kind, "because")


def test_a_rank_that_could_not_start_explains_a_missed_start_up(tmp_path: Path) -> None:
    rank_says(tmp_path, 0, "launch_error", "no such backend", at=1.0)

    assert failure(tmp_path, RunOutcome(reason="startup_deadline")).kind == "launch_error"


def test_what_ranks_write_while_they_are_cancelled_is_no_crash(tmp_path: Path) -> None:
    rank_says(tmp_path, 0, "crash", "interrupted", at=1.0)

    assert failure(tmp_path, RunOutcome(reason="cancelled")).kind == "cancelled"


@pytest.mark.parametrize(("code", "kind"), [(40, "out_of_memory"), (41, "mismatch"), (42, "diverged"), (7, "crash")])
def test_an_exit_code_keeps_the_kind_when_the_failure_file_was_lost(tmp_path: Path, code: int, kind: str) -> None:
    exits = (
        RankExit(rank=0, exit_code=None, signal=15),
        RankExit(rank=3, exit_code=code, signal=None),
    )

    got = failure(tmp_path, EXITED.model_copy(update={"rank_exits": exits}))

    assert (got.kind, got.rank) == (kind, 3)


def test_an_end_without_report_is_a_crash_even_with_exit_code_0(tmp_path: Path) -> None:
    got = failure(tmp_path, RunOutcome(reason="exited", exit_code=0))

    assert got.message == "the run ended with exit code 0 and left no report"


def test_the_log_of_the_failed_rank_is_quoted_without_escapes(tmp_path: Path) -> None:
    logs = tmp_path / "logs" / "r1_x" / "attempt_0" / "1"
    logs.mkdir(parents=True)
    (logs / "stderr.log").write_bytes(b"y" * 50_000 + b"\n\x1b[31mValueError: bad\x1b[0m\x07\n")
    rank_says(tmp_path, 1, "crash", "ValueError: bad", at=1.0)

    tail = failure(tmp_path).log_tail

    assert tail.endswith("ValueError: bad")
    assert "\x1b" not in tail
    assert len(tail) <= 4000


def test_pooled_runs_count_every_step_alike(tmp_path: Path) -> None:
    write_document(tmp_path / REPORT_FILE, report(step_seconds=(0.4, 0.4, 0.4)))
    first = result(tmp_path)
    write_document(tmp_path / REPORT_FILE, report(step_seconds=(0.6, 0.8), startup_seconds=2.25))
    second = result(tmp_path)
    assert isinstance(first, Measurement)
    assert isinstance(second, Measurement)

    got = pool([first, second], job=tiny_job())

    # 0.4 0.4 0.4 0.6 0.8: the median is 0.4; start-up (1.25 + 2.25) / 2.
    assert (got.step_seconds.median, got.step_seconds.count, got.runs) == (0.4, 5, 2)
    assert got.tokens_per_second == pytest.approx(160.0)
    assert got.tokens_per_second_per_device == pytest.approx(80.0)
    assert got.startup_seconds == pytest.approx(1.75)


def test_one_sample_is_its_own_percentile() -> None:
    got = step_statistics([0.25])

    assert json.loads(got.model_dump_json()) == {"min": 0.25, "median": 0.25, "p10": 0.25, "p90": 0.25, "count": 1}
