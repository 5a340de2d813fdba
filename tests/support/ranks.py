"""Forks ranks from the test process, and ends every one of them whatever happens.

torch must not have run a backward pass in the test process before: a forked child then refuses its own.  Tests that
need one run it in a rank, a world of one if need be.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from trials.build import build_trainer
from trials.contract import RankFailure, RunReport, RunRequest, failure_file, read_document
from trials.mesh import build_mesh, warm_up
from trials.ranks import Grid
from trials.run import run_rank
from trials.runtime import RankPlace, join_world, leave_world
from trials.step import Trainer
from trials.stopwatch import Stopwatch
from trials.verify import check_request

# How long the others may go on after the first rank failed.
GRACE_SECONDS = 1.0
STATUS_OF_EXCEPTION = 99


class RanksTimeout(AssertionError):
    """The ranks did not end in time; they have been killed."""


def run_ranks(
    world_size: int, body: Callable[[int], int], *, log_dir: Path, timeout_seconds: float = 60.0
) -> list[int]:
    """Fork `world_size` ranks that end with the status `body(rank)` returns; their statuses, negative for a signal.

    Output goes to `rank-K.log` in `log_dir`. Raises RanksTimeout after killing all if they take too long.
    """
    children = [_fork(rank, body, log_dir / f"rank-{rank}.log") for rank in range(world_size)]
    statuses: dict[int, int] = {}
    deadline = time.monotonic() + timeout_seconds
    try:
        while len(statuses) < world_size and time.monotonic() < deadline:
            for rank, pid in enumerate(children):
                if rank not in statuses and (ended := _poll(pid)) is not None:
                    statuses[rank] = ended
                    if ended != 0:
                        deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
            time.sleep(0.002)
        timed_out = len(statuses) < world_size and not any(statuses.values())
    finally:
        for rank, pid in enumerate(children):
            if rank not in statuses:
                os.kill(pid, signal.SIGKILL)
                statuses[rank] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if timed_out:
        raise RanksTimeout(f"{world_size} ranks did not end in {timeout_seconds} s\n{logs(log_dir)}")
    return [statuses[rank] for rank in range(world_size)]


def logs(log_dir: Path) -> str:
    """All ranks' output, for a failed test's message."""
    return "\n".join(f"--- {path.name}\n{path.read_text()}" for path in sorted(log_dir.glob("rank-*.log")))


def _fork(rank: int, body: Callable[[int], int], log: Path) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid != 0:
        return pid
    status = STATUS_OF_EXCEPTION
    try:
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(file, 1)
        os.dup2(file, 2)
        # pytest replaced these by files of its own.
        sys.stdout = sys.stderr = os.fdopen(1, "w", buffering=1, closefd=False)
        signal.alarm(0)
        torch.set_num_threads(1)
        status = body(rank)
    except BaseException:  # noqa: BLE001 - a child must never return into pytest
        traceback.print_exc(file=sys.stdout)
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(status)


def _poll(pid: int) -> int | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended == pid else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run left behind."""

    statuses: list[int]
    run_dir: Path

    @property
    def report(self) -> RunReport:
        """The report; its absence fails the test with the ranks' output."""
        path = self.run_dir / "report.json"
        assert path.exists(), logs(self.run_dir)
        return read_document(RunReport, path)

    def failure(self, rank: int) -> RankFailure:
        """A rank's failure file."""
        path = self.run_dir / failure_file(rank)
        assert path.exists(), logs(self.run_dir)
        return read_document(RankFailure, path)

    @property
    def failed_ranks(self) -> list[int]:
        """Ranks that wrote a failure file."""
        return [rank for rank in range(len(self.statuses)) if (self.run_dir / failure_file(rank)).exists()]


def run_request(request: RunRequest, run_dir: Path, *, world_size: int) -> Outcome:
    """Run the trainer's own entry point in forked ranks."""
    run_dir.mkdir(parents=True, exist_ok=True)
    meeting = _meeting(run_dir)

    def body(rank: int) -> int:
        return run_rank(
            request,
            rank=rank,
            world_size=world_size,
            local_rank=rank,
            run_dir=run_dir,
            init_method=meeting,
        )

    return Outcome(statuses=run_ranks(world_size, body, log_dir=run_dir), run_dir=run_dir)


def with_trainer(request: RunRequest, run_dir: Path, body: Callable[[Trainer], None]) -> None:
    """Build the request's trainer in forked ranks and run `body` in each; fails the test unless all end well."""
    layout = request.layout
    meeting = _meeting(run_dir)
    device = torch.device("cpu")

    def rank_body(rank: int) -> int:
        check_request(request, world_size=layout.world_size)
        place = RankPlace(rank=rank, world_size=layout.world_size, local_rank=rank, init_method=meeting)
        join_world(place, device=device, timeout_seconds=30.0)
        stopwatch = Stopwatch(device)
        mesh = build_mesh(
            Grid(tp=layout.tp, pp=layout.pp, dp=layout.dp),
            rank=rank,
            num_kv_heads=request.model.num_kv_heads,
            tied_embeddings=request.model.tied_embeddings,
            timeout_seconds=30.0,
            stopwatch=stopwatch,
        )
        warm_up(mesh, device=device)
        body(build_trainer(request, mesh=mesh, device=device, stopwatch=stopwatch))
        leave_world()
        return 0

    statuses = run_ranks(layout.world_size, rank_body, log_dir=run_dir)
    assert statuses == [0] * layout.world_size, logs(run_dir)


def _meeting(run_dir: Path) -> str:
    """A rendezvous file that no other run has used."""
    return f"file://{run_dir}/meeting-{time.monotonic_ns()}"
