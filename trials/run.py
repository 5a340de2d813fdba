"""Entry point of a rank: `python -m trials.run REQUEST.json [--run-dir DIR]`, one process a rank (torchrun).

Exit status: 0, or the contract's codes (40 out of memory, 41 mismatch, 42 diverged), or 1 for anything else.  A rank
that fails writes why and ends at once; ending the others is the supervisor's business.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import torch

from trials.build import build_trainer, count_built
from trials.contract import REPORT_FILE, REQUEST_SCHEMA, RunRequest, read_document, write_document
from trials.failures import EXIT_CODES, EXIT_OTHER, LaunchError
from trials.measure import run_steps
from trials.mesh import build_mesh, warm_up
from trials.profile import MemoryProfile
from trials.ranks import Grid
from trials.report import Console, Startup, gather_reports, rank_report, remove_stale, run_report, write_failure
from trials.runtime import (
    RankPlace,
    choose_device,
    join_world,
    leave_world,
    lift_memory_limit,
    limit_memory,
    prepare_process,
)
from trials.stopwatch import Stopwatch
from trials.verify import check_built, check_request


def run_rank(
    request: RunRequest, *, rank: int, world_size: int, local_rank: int, run_dir: Path, init_method: str
) -> int:
    """Train as one rank and return its exit status; every failure is written to the run directory.

    `init_method` is one of torch.distributed: `env://`, or `file://PATH` with a path that no earlier run has used. The
    caller should end the process with this status at once.
    """
    entered = time.time()
    place = RankPlace(rank=rank, world_size=world_size, local_rank=local_rank, init_method=init_method)
    try:
        remove_stale(run_dir, rank=rank)
        _train(request, place=place, run_dir=run_dir, entered=entered)
    except Exception as error:  # noqa: BLE001 - whatever it was, the supervisor must learn of it
        return _report_failure(run_dir, error, run_id=request.run_id, rank=rank)
    return 0


def _train(request: RunRequest, *, place: RankPlace, run_dir: Path, entered: float) -> None:
    console = Console(run_dir, request=request, rank=place.rank)
    console.started()
    check_request(request, world_size=place.world_size)
    resources, layout = request.resources, request.layout
    device = choose_device(resources, local_rank=place.local_rank)
    prepare_process(resources)
    torch.manual_seed(request.training.seed)
    backend = join_world(place, device=device, timeout_seconds=resources.collective_timeout_seconds)
    stopwatch = Stopwatch(device)
    mesh = build_mesh(
        Grid(tp=layout.tp, pp=layout.pp, dp=layout.dp),
        rank=place.rank,
        num_kv_heads=request.model.num_kv_heads,
        tied_embeddings=request.model.tied_embeddings,
        timeout_seconds=resources.collective_timeout_seconds,
        stopwatch=stopwatch,
    )
    warm_up(mesh, device=device)
    memory = MemoryProfile(device)
    limit_memory(resources)

    trainer = build_trainer(request, mesh=mesh, device=device, stopwatch=stopwatch)
    built = count_built(trainer)
    check_built(built, request)
    console.header(built, device=device, backend=backend)
    now = time.time()
    startup = Startup(startup_seconds=now - process_started(), setup_seconds=now - entered)

    recording = run_steps(trainer, on_step=console.step)

    mine = rank_report(trainer, recording, peak=memory.peak())
    ranks = gather_reports(mine, world=mesh.world, device=device)
    if place.rank == 0:
        report = run_report(request, recording, startup=startup, built=built, ranks=ranks, backend=backend)
        write_document(run_dir / REPORT_FILE, report)
        console.finished(report)
    leave_world()


def _report_failure(run_dir: Path, error: Exception, *, run_id: str, rank: int) -> int:
    lift_memory_limit()
    failure = write_failure(run_dir, error, run_id=run_id, rank=rank)
    print(f"rank {rank}: {failure.kind}: {failure.message}", file=sys.stderr, flush=True)
    if failure.kind in ("crash", "out_of_memory"):
        print(failure.traceback, file=sys.stderr, flush=True)
    return EXIT_CODES[failure.kind]


def process_started() -> float:
    """When this process was started or forked, in seconds since 1970; now, where the kernel does not say."""
    try:
        ticks = int(
            Path("/proc/self/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[19]
        )
        uptime = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return time.time()
    return time.time() - uptime + ticks / os.sysconf("SC_CLK_TCK")


def read_request(path: Path) -> RunRequest:
    """The request. Raises LaunchError if it cannot be read, ContractError if it is not one."""
    try:
        request = read_document(RunRequest, path)
    except OSError as error:
        raise LaunchError(f"the request {path} cannot be read: {error.strerror}") from None
    if request.schema != REQUEST_SCHEMA:
        raise LaunchError(f"{path.name}: schema {request.schema!r}, and this trainer reads {REQUEST_SCHEMA!r}")
    return request


def main(arguments: list[str]) -> int:
    """Run the rank that the environment names."""
    parser = argparse.ArgumentParser(prog="trials.run", description="Train one rank of the bundled GPT.")
    parser.add_argument("request", type=Path, help="request.json, as trials.contract defines it")
    parser.add_argument("--run-dir", type=Path, help="where the results go (default: the request's folder)")
    options = parser.parse_args(arguments)
    run_dir: Path = options.run_dir or options.request.resolve().parent
    rank = int(os.environ.get("RANK", "0")) if os.environ.get("RANK", "0").isdigit() else 0
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        request = read_request(options.request)
        place = RankPlace.from_environment(os.environ)
    except (ValueError, OSError, LaunchError) as error:
        return _report_failure(run_dir, error, run_id="", rank=rank) if run_dir.is_dir() else EXIT_OTHER
    return run_rank(
        request,
        rank=place.rank,
        world_size=place.world_size,
        local_rank=place.local_rank,
        run_dir=run_dir,
        init_method=place.init_method,
    )


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # The interpreter's own shutdown takes longer than many trials' steps, and everything has been written.
    os._exit(status)
