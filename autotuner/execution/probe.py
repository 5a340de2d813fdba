"""Runs the micro-benchmarks of this machine in a process of their own and reads what they left."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from pydantic import ValidationError

from autotuner.domain.errors import LaunchRefused
from autotuner.domain.probe import ProbeResult
from autotuner.domain.validation import one_sentence
from autotuner.execution import commands
from autotuner.execution.environment import inherited
from autotuner.handoff.support import trainer_folder
from autotuner.handoff.tail import end_text, read_end

MAX_DOCUMENT_BYTES = 4_000_000


def run_probe_process(output: Path, *, ranks: int, timeout_seconds: float) -> ProbeResult:
    """Probe with `ranks` ranks at once. Raises LaunchRefused with the end of its log; nothing is left running."""
    log = output.with_suffix(".log")
    env = inherited() | {"PYTHONPATH": str(trainer_folder().parent), "GLOO_SOCKET_IFNAME": "lo"}
    argv = [sys.executable, "-m", "trials.probe.run", str(output), "--ranks", str(ranks)]
    try:
        log.unlink(missing_ok=True)
        process = commands.start(argv, env=env, cwd=output.parent, log=log, death_signal=signal.SIGTERM)
    except OSError as error:
        raise LaunchRefused(f"the probe cannot be started in {output.parent}: {error.strerror or error}") from None
    status: int | None = None
    try:
        status = commands.wait_for(process, timeout_seconds=timeout_seconds)
    finally:
        if status is None:
            # It ends its ranks when it is asked to, and the kernel does when it dies.
            process.terminate()
            if commands.wait_for(process, timeout_seconds=5.0) is None:
                process.kill()
                process.wait(5.0)
    if status != 0:
        told = "took too long" if status is None else f"ended with status {status}"
        raise LaunchRefused(f"the probe {told}: {end_text(log, max_bytes=1500)}")
    return _read(output)


def _read(path: Path) -> ProbeResult:
    try:
        return ProbeResult.from_json(json.loads(read_end(path, max_bytes=MAX_DOCUMENT_BYTES)))
    except ValidationError as error:
        raise LaunchRefused(f"the probe's document {path} is not one: {one_sentence(error)}") from None
    except ValueError as error:
        raise LaunchRefused(f"the probe's document {path} is not one: {error}") from None
