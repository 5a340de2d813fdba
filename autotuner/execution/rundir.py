"""What lies in a run's folder and how it gets there; everything about a run is found from <runs root>/<name>/.

    request.json   what the ranks read              progress.jsonl, report.json, failure-rank-K.json: theirs
    order.json     what the supervisor is to do     launcher.log, logs/...: output of launcher and ranks
    runner.json    who supervises                   cancel: the run is to end    released: its result was collected
    outcome.json   how it ended                     runner.log: what the supervisor itself had to say

Documents are written whole by renaming.  Standard library only: the supervisor imports it and must start quickly.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autotuner.execution.processes import ProcessId, boot_id

TAG_NAME = "AUTOTUNER_RUN"
TAG_FOLDER = "AUTOTUNER_RUN_DIR"
"""Environment variables of every process of a run; the folder is unique on a machine, the name is for people."""

_MAX_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Instructions:
    """What a supervisor does: start `argv` with exactly `env` (its tags included), and when to end it."""

    name: str
    argv: list[str]
    env: dict[str, str]
    hard_seconds: float
    startup_seconds: float
    no_progress_seconds: float
    grace_seconds: float
    max_log_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolder:
    """The files of one run."""

    path: Path

    @property
    def request(self) -> Path:
        """What the ranks read."""
        return self.path / "request.json"

    @property
    def progress(self) -> Path:
        """What grows with each step."""
        return self.path / "progress.jsonl"

    @property
    def outcome(self) -> Path:
        """How it ended."""
        return self.path / "outcome.json"

    @property
    def cancel(self) -> Path:
        """There when the run is to end."""
        return self.path / "cancel"

    @property
    def released(self) -> Path:
        """There when the result was collected."""
        return self.path / "released"

    @property
    def launcher_log(self) -> Path:
        """Output of the launch command."""
        return self.path / "launcher.log"

    @property
    def runner_log(self) -> Path:
        """What the supervisor had to say."""
        return self.path / "runner.log"

    def logs(self) -> list[Path]:
        """Every file that a process of the run writes without limit."""
        return [path for path in self.path.rglob("*.log") if path.is_file() and not path.is_symlink()]

    def write_instructions(self, instructions: Instructions) -> None:
        """Raises OSError."""
        write_json(self.path / "order.json", asdict(instructions))

    def read_instructions(self) -> Instructions:
        """Raises OSError, ValueError."""
        data = read_json(self.path / "order.json")
        if data is None:
            raise ValueError(f"{self.path / 'order.json'} holds no instructions")
        try:
            return Instructions(**data)
        except TypeError as error:
            raise ValueError(f"{self.path / 'order.json'}: {error}") from None

    def write_runner(self, runner: ProcessId) -> None:
        """Raises OSError."""
        data = {"pid": runner.pid, "start_ticks": runner.start_ticks, "boot_id": boot_id()}
        write_json(self.path / "runner.json", data)

    def runner(self) -> ProcessId | None:
        """The supervisor if it was one of this boot; whether it lives is another question."""
        data = read_json(self.path / "runner.json")
        if data is None or data.get("boot_id") != boot_id():
            return None
        pid, start_ticks = data.get("pid"), data.get("start_ticks")
        return ProcessId(pid, start_ticks) if isinstance(pid, int) and isinstance(start_ticks, int) else None

    @property
    def was_started(self) -> bool:
        """Whether a supervisor has ever taken the run on."""
        return (self.path / "runner.json").exists()


def write_text(path: Path, text: str) -> None:
    """Write a private file so that a reader sees all of it or nothing, even after a crash. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write an object as JSON, whole or not at all. Raises OSError."""
    write_text(path, json.dumps(data, allow_nan=False, indent=1, sort_keys=True) + "\n")


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a file of ours; None when there is no file, or something else in it."""
    try:
        with path.open("rb") as file:
            data = json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None
