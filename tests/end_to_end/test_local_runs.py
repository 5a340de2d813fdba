"""Without a service: `tune --local` and `measure`, with the real trainer."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.service_process import TINY_JOB, processes_with

pytestmark = [pytest.mark.trainer, pytest.mark.timeout(300)]


def run(*arguments: str, cwd):
    done = subprocess.run(
        [sys.executable, "-m", "autotuner", *arguments, "--data-dir", str(cwd / "data")],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=cwd,
        check=False,
    )
    assert processes_with(str(cwd)) == []
    return done


def test_a_job_is_tuned_here_with_another_strategy(tmp_path):
    (tmp_path / "job.json").write_text(json.dumps(TINY_JOB | {"budget": {"max_trials": 2}}))
    done = run("tune", "job.json", "--local", "--strategy", "random", "-o", "best", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    best = json.loads(done.stdout)
    assert best["trials"] == {"succeeded": 2, "failed": {}}
    assert best["step_seconds"]["count"] >= 6
    request = json.loads((tmp_path / "best" / "request.json").read_text())
    assert request["layout"]["tp"] == best["config"]["tp"]
    assert (tmp_path / "best" / "launch.sh").stat().st_mode & 0o100


def test_a_layout_is_measured_beside_its_estimate(tmp_path):
    (tmp_path / "job.json").write_text(json.dumps(TINY_JOB))
    done = run("measure", "job.json", "--tp", "2", "--micro-batch", "4", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["failure"] is None
    assert report["config"]["tp"] == 2
    measured = report["measurement"]
    # 8 sequences of 32 tokens a step
    assert measured["tokens_per_second"] == pytest.approx(256 / measured["step_seconds"]["median"])
    assert report["estimate"]["step_seconds"] > 0


def test_a_layout_that_needs_more_memory_than_its_device_has_fails_as_out_of_memory(tmp_path):
    link = {"bandwidth_bytes_per_second": 1e9}
    device = {
        "name": "thimble",
        "kind": "cpu",
        "memory_bytes": 40_000_000,
        "peak_flops": {"fp32": 1e11},
        "memory_bandwidth_bytes_per_second": 1e10,
    }
    # 4 layers of 512: 12.6 M parameters, 16 bytes each = 200 MB
    job = TINY_JOB | {
        "model": {"num_layers": 4, "hidden_size": 512, "num_heads": 8, "vocab_size": 256, "max_seq_len": 32},
        "cluster": {"devices_per_node": 1, "device": device, "intra_node": link, "inter_node": link},
    }
    (tmp_path / "job.json").write_text(json.dumps(job))
    done = run("measure", "job.json", "--json", cwd=tmp_path)
    assert done.returncode == 7, done.stderr
    failure = json.loads(done.stdout)["failure"]
    assert failure["kind"] == "out_of_memory"
    assert failure["rank"] == 0
    assert failure["hint"]
    # The rank's own traceback is in the log tail; what the user reads first is the sentence.
    first = next(line for line in done.stderr.splitlines() if line.startswith("autotuner: "))
    assert "failed as out_of_memory" in first
