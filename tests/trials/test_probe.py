from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from autotuner.domain.probe import ProbeResult
from trials.probe.clock import call_seconds
from trials.probe.collectives import latency_and_bandwidth

ROOT = Path(__file__).parents[2]


def _start(output: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "trials.probe.run", str(output), *options],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 10
    while alive := [pid for pid in pids if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < deadline, f"still alive: {alive}"
        time.sleep(0.05)


@pytest.mark.trainer
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_probe_leaves_one_document_that_the_service_reads(tmp_path: Path, ranks: int):
    process = _start(tmp_path / "probe.json", "--ranks", str(ranks), "--device", "cpu")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    result = ProbeResult.from_json(json.loads((tmp_path / "probe.json").read_text()))
    assert (result.ranks, result.device_kind, result.threads_per_rank) == (ranks, "cpu", 1)
    assert {point.ranks for point in result.gemm} == ({1} if ranks == 1 else {1, 2})
    sizes = [point.num_bytes for point in result.collectives if point.op == "all_reduce"]
    assert sizes == ([] if ranks == 1 else [4096, 65536, 1048576, 16777216])
    assert (result.p2p_latency_seconds is None) == (ranks == 1)
    assert [path.name for path in tmp_path.iterdir()] == ["probe.json"]


@pytest.mark.trainer
def test_a_probe_that_takes_too_long_is_ended_whole_and_leaves_no_document(tmp_path: Path):
    process = _start(tmp_path / "probe.json", "--device", "cpu", "--timeout-seconds", "0.1")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "still busy after 0.1 s; give more with --timeout-seconds" in errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.trainer
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_ranks_end_with_the_process_that_started_them(tmp_path: Path, number: signal.Signals):
    process = _start(tmp_path / "probe.json", "--device", "cpu")
    deadline = time.monotonic() + 60
    while len(ranks := _children(process.pid)) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(process.pid, number)
    process.communicate(timeout=30)
    _wait_until_gone(ranks)


@pytest.mark.trainer
def test_a_rank_that_dies_fails_the_probe_and_ends_the_others(tmp_path: Path):
    process = _start(tmp_path / "probe.json", "--device", "cpu")
    deadline = time.monotonic() + 60
    while len(ranks := _children(process.pid)) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(ranks[1], signal.SIGKILL)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "probe failed: rank" in errors
    _wait_until_gone(ranks)


@pytest.mark.parametrize("options", [("--ranks", "0"), ("--ranks", "1000")])
def test_an_absurd_number_of_ranks_is_refused(tmp_path: Path, options: tuple[str, str]):
    process = _start(tmp_path / "probe.json", *options)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "not between 1 and 256" in errors


@pytest.mark.parametrize(("statistic", "seconds"), [("best", 1.0), ("mean", 2.0)])
def test_best_and_mean_of_repeated_calls(statistic: str, seconds: float):
    # The clock is read at the start, then around each of the three calls, which take 1, 4 and 1 seconds.
    readings = iter([0.0, 0.0, 1.0, 1.0, 5.0, 5.0, 6.0])
    calls = []
    found = call_seconds(
        lambda: calls.append(None),
        device=torch.device("cpu"),
        budget_seconds=0.0,
        max_repetitions=3,
        statistic=statistic,
        clock=lambda: next(readings),
    )
    assert found == seconds
    assert len(calls) == 4  # one is not timed


def test_a_small_and_a_large_message_give_latency_and_bandwidth():
    points = [
        {"op": "send_recv", "ranks": 2, "num_bytes": 4096, "seconds": 1e-4 + 4096 / 1e9},
        {"op": "send_recv", "ranks": 2, "num_bytes": 4 * 1024 * 1024, "seconds": 1e-4 + 4 * 1024 * 1024 / 1e9},
    ]
    latency, bandwidth = latency_and_bandwidth(points)
    assert latency == pytest.approx(1e-4)
    assert bandwidth == pytest.approx(1e9)
