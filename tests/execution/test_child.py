"""The companion of a service: started again when it dies, ended with it, and by the kernel when nobody else can."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from autotuner.execution.child import Companion
from tests.support.service_process import processes_with, wait_until

ENV = {"PATH": os.environ["PATH"]}


def _sleeper(marker: str) -> list[str]:
    return [sys.executable, "-c", f"import time; time.sleep(600)  # {marker}"]


def test_a_companion_that_dies_is_started_again_and_stops_when_told(tmp_path):
    marker = f"companion-{os.getpid()}-a"
    companion = Companion(_sleeper(marker), environment=ENV, grace_seconds=5.0, max_restarts=3)
    companion.start()
    (first,) = wait_until(lambda: processes_with(marker), "it runs", seconds=20)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: processes_with(marker) not in ([], [first]), "it runs again", seconds=20)
    companion.stop()
    assert companion.ended.is_set()
    assert processes_with(marker) == []


def test_without_restarts_its_end_is_noticed():
    companion = Companion([sys.executable, "-c", "pass"], environment=ENV, grace_seconds=5.0, max_restarts=0)
    companion.start()
    assert companion.ended.wait(20)
    companion.stop()


def test_one_that_ignores_sigterm_is_killed():
    marker = f"companion-{os.getpid()}-b"
    code = f"import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(600)  # {marker}"
    companion = Companion([sys.executable, "-c", code], environment=ENV, grace_seconds=0.5, max_restarts=0)
    companion.start()
    wait_until(lambda: processes_with(marker), "it runs", seconds=20)
    time.sleep(0.3)
    companion.stop()
    assert processes_with(marker) == []


def test_it_dies_with_a_service_that_was_killed():
    marker = f"companion-{os.getpid()}-c"
    argv = [sys.executable, "-c", f"import time; time.sleep(600)  # {marker}-child"]
    parent = (
        "import sys, time; from autotuner.execution.child import Companion;"
        f"Companion({argv!r}, environment={{}}, grace_seconds=1.0, max_restarts=0).start(); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", parent])
    try:
        wait_until(
            lambda: processes_with(f"{marker}-child") and len(processes_with(marker)) >= 2, "both run", seconds=30
        )
    finally:
        process.kill()
        process.wait(10)
    wait_until(lambda: not processes_with(marker), "the child is gone too", seconds=10)
