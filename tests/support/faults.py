"""A stand-in for the trainer that behaves or misbehaves on demand, and a quick way of starting its ranks.

As a module it is what a launch plan names instead of the trainer (`-m tests.support.faults REQUEST --run-dir DIR`).
The environment variable FAULT (from the plan's `env`, never from a job) says what goes wrong; without it a valid report
is written.  With FAULT_RANK only that rank misbehaves and the others wait for ever.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from trials.contract import (
    EXIT_OUT_OF_MEMORY,
    FAILURE_SCHEMA,
    REPORT_FILE,
    REPORT_SCHEMA,
    Built,
    Progress,
    RankFailure,
    RankReport,
    ReportEnvironment,
    RunReport,
    RunRequest,
    encode,
    failure_file,
    read_document,
    write_document,
)
from trials.ranks import Grid

FAULT = "FAULT"
FAULT_RANK = "FAULT_RANK"
MODULE = "tests.support.faults"
LIMIT_BYTES = 256 * 1024 * 1024


def parameters_of(request: RunRequest) -> int:
    """Parameters of a model with biases and LayerNorm or without and RMSNorm, counted from the formulas."""
    m = request.model
    qkv = m.hidden_size * m.head_dim * (m.num_heads + 2 * m.num_kv_heads)
    attention = qkv + m.num_heads * m.head_dim * m.hidden_size
    mlp = m.hidden_size * m.ffn_hidden_size * (3 if m.gated_ffn else 2)
    norm = m.hidden_size * (2 if m.norm == "layer" else 1)
    biases = 0
    if m.biases:
        biases = m.head_dim * (m.num_heads + 2 * m.num_kv_heads) + 2 * m.hidden_size
        biases += m.ffn_hidden_size * (2 if m.gated_ffn else 1)
    table = m.vocab_size * m.hidden_size
    positions = m.max_seq_len * m.hidden_size if m.position == "learned" else 0
    head = 0 if m.tied_embeddings else table
    return m.num_layers * (attention + mlp + 2 * norm + biases) + table + positions + norm + head


def valid_report(request: RunRequest, *, step_seconds: tuple[float, ...]) -> RunReport:
    """The report of a run that did exactly what was asked."""
    layout, training = request.layout, request.training
    grid = Grid(tp=layout.tp, pp=layout.pp, dp=layout.dp)
    ranks = []
    for rank in range(grid.world_size):
        place = grid.coordinates_of(rank)
        ranks.append(
            RankReport(
                rank=rank,
                tp_rank=place.tp_rank,
                pp_rank=place.pp_rank,
                dp_rank=place.dp_rank,
                hostname="testhost",
                device_name="test device",
                num_layers=request.model.num_layers // layout.pp,
                num_parameters=1,
                peak_allocated_bytes=1000 + rank,
                peak_reserved_bytes=2000 + rank,
                baseline_bytes=500,
                breakdown_seconds={"forward": 0.1 * (rank + 1), "optimizer": 0.02},
            )
        )
    return RunReport(
        schema=REPORT_SCHEMA,
        run_id=request.run_id,
        ended="completed",
        warmup_step_seconds=(0.9,) * request.steps.warmup,
        step_seconds=step_seconds,
        losses=(2.0, 1.5),
        grad_norms=(1.0, 1.0),
        startup_seconds=1.25,
        setup_seconds=0.25,
        built=Built(
            num_layers=request.model.num_layers,
            num_parameters=parameters_of(request),
            tp=layout.tp,
            pp=layout.pp,
            dp=layout.dp,
            num_microbatches=training.global_batch_size // (layout.micro_batch_size * layout.dp),
            tokens_per_step=training.global_batch_size * training.seq_len,
        ),
        ranks=tuple(ranks),
        environment=ReportEnvironment(torch_version="0", python_version="3", backend="gloo", threads_per_rank=1),
    )


def rank_failure(*, run_id: str, rank: int, kind: str, message: str, unix_seconds: float) -> RankFailure:
    """A rank's failure document."""
    return RankFailure(
        schema=FAILURE_SCHEMA,
        run_id=run_id,
        rank=rank,
        kind=kind,  # type: ignore[arg-type]
        message=message,
        traceback="",
        unix_seconds=unix_seconds,
    )


def write_progress(run_dir: Path, *, step: int, total_steps: int) -> None:
    """One progress line, as rank 0 writes it."""
    line = Progress(
        unix_seconds=time.time(),
        phase="startup" if step == 0 else "measure",
        step=step,
        total_steps=total_steps,
        step_seconds=None if step == 0 else 0.5,
        loss=None if step == 0 else 2.0,
    )
    with (run_dir / "progress.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(encode(line)) + "\n")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _succeed(request: RunRequest, run_dir: Path, rank: int) -> int:
    if rank == 0:
        total = request.steps.warmup + request.steps.measured
        for step in range(total + 1):
            write_progress(run_dir, step=step, total_steps=total)
        samples = tuple(0.5 + 0.01 * i for i in range(request.steps.measured))
        write_document(run_dir / REPORT_FILE, valid_report(request, step_seconds=samples))
    _say(f"rank {rank} is done")
    return 0


def _sleep(request: RunRequest, run_dir: Path, rank: int) -> int:
    time.sleep(300)
    return 0


def _stall(request: RunRequest, run_dir: Path, rank: int) -> int:
    if rank == 0:
        write_progress(run_dir, step=3, total_steps=8)
    time.sleep(300)
    return 0


def _tick_for_ever(request: RunRequest, run_dir: Path, rank: int) -> int:
    for step in range(1, 3000):
        if rank == 0:
            write_progress(run_dir, step=step, total_steps=3000)
        time.sleep(0.1)
    return 0


def _kill_self(request: RunRequest, run_dir: Path, rank: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def _allocate(request: RunRequest, run_dir: Path, rank: int) -> int:
    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT_BYTES, LIMIT_BYTES))
    blocks = []
    try:
        while True:
            blocks.append(bytearray(16 * 1024 * 1024))
    except MemoryError:
        blocks.clear()
        failure = rank_failure(
            run_id=request.run_id,
            rank=rank,
            kind="out_of_memory",
            message="could not allocate 16777216 bytes",
            unix_seconds=time.time(),
        )
        write_document(run_dir / failure_file(rank), failure)
        return EXIT_OUT_OF_MEMORY


def _half_report(request: RunRequest, run_dir: Path, rank: int) -> int:
    (run_dir / REPORT_FILE).write_text('{"schema": "autotuner.run-report/1", "run_id": "x', encoding="utf-8")
    return 0


def _ignore_sigterm(request: RunRequest, run_dir: Path, rank: int) -> int:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if rank == 0:
        write_progress(run_dir, step=1, total_steps=8)
    while True:
        time.sleep(1)


def _daemonise(request: RunRequest, run_dir: Path, rank: int) -> int:
    """Leave a grandchild in a session of its own behind, which ignores SIGTERM, and end as if all were well."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() > 0:
            os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        (run_dir / f"grandchild-{rank}").write_text(str(os.getpid()), encoding="utf-8")
        time.sleep(300)
        os._exit(0)
    while not (run_dir / f"grandchild-{rank}").exists():
        time.sleep(0.01)
    return _succeed(request, run_dir, rank)


def _no_report(request: RunRequest, run_dir: Path, rank: int) -> int:
    return 0


def _print_much(request: RunRequest, run_dir: Path, rank: int) -> int:
    line = "x" * 1023
    _say("the first line")
    for _ in range(24 * 1024):
        _say(line)
    _say("\x1b[31mthe last line\x1b[0m")
    time.sleep(2.5)  # the supervisor looks after the logs every two seconds
    return _succeed(request, run_dir, rank)


def _print_environment(request: RunRequest, run_dir: Path, rank: int) -> int:
    if rank == 0:
        (run_dir / "environment.json").write_text(json.dumps(dict(os.environ)), encoding="utf-8")
        (run_dir / "argv.json").write_text(json.dumps(sys.argv), encoding="utf-8")
    return _succeed(request, run_dir, rank)


def _remove_folder(request: RunRequest, run_dir: Path, rank: int) -> int:
    for path in run_dir.iterdir():
        if path.is_file():
            path.unlink()
    run_dir.rmdir()
    time.sleep(300)
    return 0


BEHAVIOURS: dict[str, Callable[[RunRequest, Path, int], int]] = {
    "succeed": _succeed,
    "sleep": _sleep,
    "stall": _stall,
    "tick": _tick_for_ever,
    "kill": _kill_self,
    "allocate": _allocate,
    "half-report": _half_report,
    "ignore-sigterm": _ignore_sigterm,
    "daemonise": _daemonise,
    "no-report": _no_report,
    "print-much": _print_much,
    "environment": _print_environment,
    "remove-folder": _remove_folder,
}


def main(arguments: list[str]) -> int:
    """Be one rank, or with `--gang N` start N of them and end like torchrun does."""
    if arguments[0] == "--gang":
        return _gang(int(arguments[1]), arguments[2:])
    request = read_document(RunRequest, Path(arguments[0]))
    rank = int(os.environ["RANK"])
    fault = os.environ.get(FAULT, "succeed")
    if int(os.environ.get(FAULT_RANK, rank)) != rank:
        fault = "sleep"
    return BEHAVIOURS[fault](request, Path(arguments[2]), rank)


def _gang(ranks: int, command: list[str]) -> int:
    processes = [
        subprocess.Popen(  # in sessions of their own, as torchrun starts them
            command, env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks)}, start_new_session=True
        )
        for rank in range(ranks)
    ]
    signal.signal(signal.SIGTERM, lambda *_: [p.terminate() for p in processes])
    first = next((code for code in _codes(processes) if code), None)
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait()
    return 0 if first is None else 1


def _codes(processes: list[subprocess.Popen[bytes]]) -> list[int | None]:
    while True:
        codes = [process.poll() for process in processes]
        if any(codes) or None not in codes:
            for rank, code in enumerate(codes):
                if code:
                    _say(f"rank {rank} ended with {code}")
            return codes
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
