"""Where the logs of a run lie, and their ends as text that is safe to show."""

from __future__ import annotations

from pathlib import Path

from autotuner.domain.errors import NotFound
from autotuner.handoff.tail import end_text
from trials.contract import log_file

LAUNCHER_LOG = "launcher.log"
TAIL_CHARS = 4000


def rank_logs(run_dir: Path, *, rank: int) -> list[Path]:
    """Files that hold what a rank wrote, standard error last: the trainer's own log, or torchrun's two."""
    own = run_dir / log_file(rank)
    if own.is_file():
        return [own]
    found = [
        path
        for name in ("stdout.log", "stderr.log")
        # logs/<run>_<random>/attempt_0/<rank>/<name>
        for path in sorted((run_dir / "logs").glob(f"*/attempt_*/{rank}/{name}"))
    ]
    return [path for path in found if path.is_file()]


def log_tail(run_dir: Path, *, rank: int, max_bytes: int) -> str:
    """The end of one rank's log, empty while it wrote nothing. Raises NotFound when there is no such run or rank."""
    if not run_dir.is_dir():
        raise NotFound(f"the files of run {run_dir.name} were cleaned up, so its log is gone")
    logs = rank_logs(run_dir, rank=rank)
    if not logs and (known := _ranks_with_logs(run_dir)):
        raise NotFound(f"run {run_dir.name} has no rank {rank}; it has ranks {known[0]} to {known[-1]}")
    return _joined(logs, max_bytes=max_bytes) if logs else launcher_tail(run_dir, max_bytes=max_bytes)


def launcher_tail(run_dir: Path, *, max_bytes: int) -> str:
    """The end of what the launch command wrote."""
    return end_text(run_dir / LAUNCHER_LOG, max_bytes=max_bytes)


def failure_tail(run_dir: Path, *, rank: int | None) -> str:
    """The lines that go with a failure: those of the rank that failed first, else the launch command's."""
    text = _joined(rank_logs(run_dir, rank=rank), max_bytes=TAIL_CHARS) if rank is not None else ""
    return text or launcher_tail(run_dir, max_bytes=TAIL_CHARS)


def _joined(logs: list[Path], *, max_bytes: int) -> str:
    share = max(1, max_bytes // max(1, len(logs)))
    parts = (end_text(path, max_bytes=share) for path in logs)
    return "\n".join(part for part in parts if part)


def _ranks_with_logs(run_dir: Path) -> list[int]:
    names = [path.name for path in (run_dir / "logs").glob("*/attempt_*/*")]
    return sorted({int(name) for name in names if name.isdecimal()})
