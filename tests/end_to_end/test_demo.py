"""`autotuner demo`: the whole product in a folder with a space in its name; and Ctrl-C leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from tests.support.service_process import kill_all, processes_with, wait_until

pytestmark = [pytest.mark.trainer, pytest.mark.timeout(400)]

DEMO = [sys.executable, "-m", "autotuner", "demo", "--trials", "2", "--devices", "2"]


def test_the_demo_ends_with_a_layout_and_a_script_that_trains(tmp_path):
    output = tmp_path / "demo output"
    for attempt in (1, 2):
        done = subprocess.run(
            [*DEMO, "--output", str(output)], capture_output=True, text=True, timeout=300, cwd=tmp_path, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert re.search(r"Dashboard, live: http://127\.0\.0\.1:\d+/jobs/", done.stdout), attempt
        for expected in ("Measured layouts", "Best layout:", "the naive layout", "Launch script:", "Look again:"):
            assert expected in done.stdout
    result = json.loads((output / "result.json").read_text())
    assert result["trials"]["succeeded"] == 2
    assert result["speedup_over_baseline"] >= 1.0
    assert (output / "autotuner.db").exists()
    assert processes_with(str(output)) == []

    # Fewer steps: the number is in the request file, as the bundle's README says.
    request_file = output / "best" / "request.json"
    request = json.loads(request_file.read_text())
    request["steps"]["measured"] = 8
    request_file.write_text(json.dumps(request))
    trained = subprocess.run(
        ["bash", str(output / "best" / "launch.sh")], capture_output=True, text=True, timeout=120, cwd="/", check=False
    )
    assert trained.returncode == 0, trained.stdout + trained.stderr
    losses = [float(loss) for loss in re.findall(r"loss (\d+\.\d+)", trained.stdout)]
    assert len(losses) == request["steps"]["warmup"] + 8
    assert losses[-1] < losses[0]


def test_an_interrupted_demo_leaves_no_process(tmp_path):
    output = tmp_path / "demo"
    demo = subprocess.Popen(
        [*DEMO, "--output", str(output)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        wait_until(lambda: processes_with(f"{output}/runs"), "a trial runs", seconds=120)
        time.sleep(1.0)
        # What a terminal does on Ctrl-C: SIGINT to every process of the foreground group.
        os.killpg(demo.pid, signal.SIGINT)
        out, _ = demo.communicate(timeout=90)
        assert demo.returncode == 130, out.decode()
        wait_until(lambda: not processes_with(str(output)), "everything is gone", seconds=10)
    finally:
        kill_all([*processes_with(str(output)), demo.pid])
        demo.communicate(timeout=10)
