"""Entry point: `python -m trials.probe.run OUT.json --ranks N` forks N ranks, waits for them and leaves one document.

Decides how ranks are started and ended; what they measure is `rank.py`'s business.  The parent imports torch once and
starts none of its threads, so forking is safe and N ranks cost one import.  Exit status 0 with a document, else 1.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.02
_MAX_RANKS = 256


def main(arguments: list[str]) -> int:
    """Probe this machine."""
    parser = argparse.ArgumentParser(prog="trials.probe.run", description="Measure products, memory and messages.")
    parser.add_argument("output", type=Path, help="the JSON document to write")
    parser.add_argument("--ranks", type=int, default=2, help=f"processes that probe together, 1 to {_MAX_RANKS}")
    parser.add_argument("--device", choices=("auto", "cpu", "accelerator"), default="auto")
    parser.add_argument("--timeout-seconds", type=float, default=60.0, help="everything is killed after this time")
    options = parser.parse_args(arguments)
    if not 1 <= options.ranks <= _MAX_RANKS:
        parser.error(f"--ranks {options.ranks} is not between 1 and {_MAX_RANKS}")
    if not options.output.parent.is_dir():
        parser.error(f"{options.output.parent} is no folder; create it first")
    options.output.unlink(missing_ok=True)
    # Set before torch is imported: otherwise it starts threads in this process, and forking would lose them.
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory(prefix="probe-") as folder:
        problem = _run(
            options.ranks,
            output=options.output.absolute(),
            rendezvous=Path(folder) / "rendezvous",
            timeout_seconds=options.timeout_seconds,
            kind=options.device,
        )
    if problem is None and not options.output.is_file():
        problem = "the ranks ended without writing their document"
    if problem is not None:
        print(f"probe failed: {problem}", file=sys.stderr)
        return 1
    return 0


def _run(ranks: int, *, output: Path, rendezvous: Path, timeout_seconds: float, kind: str) -> str | None:
    """Start all ranks and wait for them; returns what went wrong. No rank is left when this returns."""
    deadline = time.monotonic() + timeout_seconds
    from trials.probe.rank import run_probe_rank  # noqa: PLC0415 - imports torch, which reads OMP_NUM_THREADS

    parent, children = os.getpid(), dict[int, int]()
    try:
        for rank in range(ranks):
            pid = os.fork()
            if pid == 0:
                _become_rank(parent)
                status = 1
                try:
                    run_probe_rank(
                        rank=rank,
                        size=ranks,
                        output=output,
                        rendezvous=rendezvous,
                        timeout_seconds=timeout_seconds,
                        kind=kind,
                    )
                    status = 0
                except BaseException:  # noqa: BLE001 - a forked child must never return into the parent's stack
                    traceback.print_exc()
                finally:
                    sys.stderr.flush()
                    os._exit(status)
            children[pid] = rank
        return _wait(children, deadline=deadline, timeout_seconds=timeout_seconds)
    finally:
        _kill(children)


def _become_rank(parent: int) -> None:
    """Die with the parent, even when it is killed."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def _wait(children: dict[int, int], *, deadline: float, timeout_seconds: float) -> str | None:
    """Reap ranks until all have ended well or one has not; ended ones leave `children`."""
    while children:
        for pid, rank in list(children.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended == 0:
                continue
            del children[pid]
            if status != 0:
                return f"rank {rank} ended with {_how(status)}; its error is above"
        if time.monotonic() > deadline:
            left = ", ".join(map(str, sorted(children.values())))
            return f"ranks {left} were still busy after {timeout_seconds:g} s; give more with --timeout-seconds"
        time.sleep(_POLL_SECONDS)
    return None


def _how(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"


def _kill(children: dict[int, int]) -> None:
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    for pid in children:
        os.waitpid(pid, 0)
    children.clear()


def _raise_interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    # Ended by a signal, it still ends its ranks.
    signal.signal(signal.SIGTERM, _raise_interrupt)
    sys.exit(main(sys.argv[1:]))
