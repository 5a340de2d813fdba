"""A real `autotuner serve` in a process of its own, with what a test needs to hurt it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2

TINY_JOB: dict[str, Any] = {
    "name": "tiny",
    "model": {
        "num_layers": 2,
        "hidden_size": 32,
        "num_heads": 2,
        "vocab_size": 256,
        "max_seq_len": 32,
    },
    "workload": {"global_batch_size": 8, "precision": "fp32"},
    "cluster": {"preset": "local", "devices_per_node": 2},
    "space": {"recompute": ["none"]},
    "budget": {"max_trials": 4},
    "measure": {"warmup_steps": 1, "steps": 4, "confirm_runs": 1, "confirm_leaders": 1},
}


class ServiceProcess:
    """`serve` on a free port with its data below `data_dir`; `stop` ends it in order, `kill` does not."""

    def __init__(self, data_dir: Path, *, lease_seconds: float = 4.0) -> None:
        self.data_dir = data_dir
        self._env = {**os.environ, "AUTOTUNER_LEASE_SECONDS": str(lease_seconds)}
        self._log = data_dir.parent / "service.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def start(self) -> ServiceProcess:
        announcement = self.data_dir / "server.json"
        announcement.unlink(missing_ok=True)
        argv = [sys.executable, "-m", "autotuner", "serve", "--data-dir", str(self.data_dir), "--port", "0"]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(argv, env=self._env, stdout=log, stderr=log, start_new_session=True)
        wait_until(announcement.exists, "the service listens", seconds=60, log=self._log)
        self.url = json.loads(announcement.read_text())["url"]
        return self

    def kill(self) -> None:
        """kill -9 of the service alone."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(60)

    def get(self, path: str) -> Any:
        response = httpx2.get(f"{self.url}/api/v1{path}", trust_env=False, timeout=20)
        response.raise_for_status()
        return response.json()

    def post(self, path: str, body: Any = None) -> httpx2.Response:
        return httpx2.post(f"{self.url}/api/v1{path}", json=body, trust_env=False, timeout=20)

    def log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]


def wait_until(condition: Callable[[], Any], what: str, *, seconds: float, log: Path | None = None) -> Any:
    """Poll until the condition gives something true; fails with what was waited for and the log."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    tail = log.read_text(errors="replace")[-4000:] if log is not None and log.exists() else ""
    raise AssertionError(f"not within {seconds:.0f} s: {what}\n{tail}")


def processes_with(*texts: str) -> list[int]:
    """Pids of living processes whose command line holds all the texts (zombies are gone already)."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            words = entry.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state = entry.joinpath("stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if all(text in words for text in texts) and state != "Z":
            found.append(int(entry.name))
    return found


def kill_all(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
