"""Runs orders on this machine, each under a supervisor of its own (`runner.py`).

All state is in the runs' folders: another executor on the same folder, after a restart, knows as much as this one.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

import autotuner
from autotuner.domain.errors import Conflict, InvalidInput, LaunchRefused
from autotuner.domain.outcome import RunOutcome, RunStatus
from autotuner.execution import commands, environment, processes
from autotuner.execution.base import RunOrder, checked_name
from autotuner.execution.logcap import cap_logs
from autotuner.execution.rundir import (
    TAG_FOLDER,
    TAG_NAME,
    Instructions,
    RunFolder,
    read_json,
    write_json,
    write_text,
)
from autotuner.handoff.logs import launcher_tail
from autotuner.handoff.tail import steps_done
from autotuner.launch.plan import Starter
from autotuner.launch.torchrun import Torchrun

TORCHRUN: Final = Torchrun()

_GRACE_SECONDS = 3.0
_START_SECONDS = 30.0
_KILL_SECONDS = 10.0
_POLL_SECONDS = 0.05
_LOG_BYTES = 8 * 1024 * 1024
_KEPT_LOG_BYTES = 1024 * 1024
_SUMMARY_CHARS = 64 * 1024
_KEPT_RUNS = 500


class LocalExecutor:
    """An `Executor` for ranks on this machine, with one folder for each run below `runs_root`."""

    def __init__(self, runs_root: Path, *, starter: Starter = TORCHRUN) -> None:
        self._runs_root = runs_root.absolute()
        self._starter = starter

    def run_dir(self, name: str) -> Path:
        """`<runs root>/<name>`. Raises InvalidInput for a name that cannot be a run's."""
        return self._runs_root / checked_name(name)

    def submit(self, order: RunOrder) -> None:
        """Start the run, or do nothing when the name is known. Raises LaunchRefused, InvalidInput."""
        folder = self._folder(order.name)
        if order.run_dir != folder.path:
            raise InvalidInput(f"run {order.name} belongs into {folder.path}, not {order.run_dir}", field="run_dir")
        instructions = self._instructions(order)
        if not self._claim(folder):
            return
        try:
            write_text(folder.request, order.request_text)
            folder.write_instructions(instructions)
            self._start_runner(folder, instructions)
        except (OSError, LaunchRefused) as error:
            self._kill(folder)
            shutil.rmtree(folder.path, ignore_errors=True)
            raise LaunchRefused(f"run {order.name} cannot be started: {error}") from None

    def poll(self, names: Sequence[str]) -> Mapping[str, RunStatus]:
        """The status of each run, from its folder and whether its supervisor lives."""
        return {name: self._status(name) for name in names}

    def cancel(self, name: str) -> None:
        """Ask the supervisor to end the run; it does so within its grace period."""
        folder = self._folder(name)
        if not folder.path.is_dir() or folder.outcome.exists():
            return
        # The marker is what counts and the signal only wakes the supervisor; on a full disk the signal is enough.
        with contextlib.suppress(OSError):
            folder.cancel.touch(mode=0o600)
        runner = folder.runner()
        if runner is not None:
            processes.send(runner, signal.SIGTERM)

    def wait_ended(self, names: Sequence[str], *, timeout_seconds: float) -> tuple[str, ...]:
        """Wait until none of them runs. The names that still do when the time is up."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            statuses = self.poll(names)
            running = tuple(n for n, status in statuses.items() if status.phase in ("starting", "running"))
            if not running or time.monotonic() >= deadline:
                return running
            time.sleep(_POLL_SECONDS)

    def release(self, name: str) -> None:
        """Shrink the run's logs and, beyond the newest few hundred, remove released runs. Raises Conflict."""
        folder = self._folder(name)
        if not folder.path.is_dir():
            return
        if self._status(name).phase in ("starting", "running"):
            raise Conflict(f"run {name} still runs; cancel it and wait for its end first")
        self._kill(folder)
        # A full disk must not keep a result from being collected: what is left to do here is only tidying.
        with contextlib.suppress(OSError):
            cap_logs(folder.logs(), max_bytes=_KEPT_LOG_BYTES)
            folder.released.touch(mode=0o600)
            self._remove_oldest()

    def kill_strays(self, known: Collection[str]) -> int:
        """Kill what runs below this root under a name that is not in `known`; returns the number of processes."""
        killed, _ = processes.kill_all(lambda: self._strays(known), timeout_seconds=_KILL_SECONDS)
        return len(killed)

    def _folder(self, name: str) -> RunFolder:
        return RunFolder(path=self.run_dir(name))

    def _claim(self, folder: RunFolder) -> bool:
        """Make the run's folder; of two submits of one name only one can, and False tells the other."""
        try:
            self._runs_root.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise LaunchRefused(f"the run folder {self._runs_root} cannot be made: {error.strerror}") from None
        try:
            folder.path.mkdir(mode=0o700)
        except FileExistsError:
            return False
        except OSError as error:
            raise LaunchRefused(f"the run folder {folder.path} cannot be made: {error.strerror}") from None
        return True

    def _instructions(self, order: RunOrder) -> Instructions:
        command = self._starter.command(order.plan)
        tags = {TAG_NAME: order.name, TAG_FOLDER: str(order.run_dir)}
        return Instructions(
            name=order.name,
            argv=list(command.argv),
            # The tags come last: nothing that a launch sets may hide its processes.
            env=environment.inherited() | dict(command.env) | {"PYTHONPATH": command.package_root} | tags,
            hard_seconds=order.hard_seconds,
            startup_seconds=order.startup_seconds,
            no_progress_seconds=order.no_progress_seconds,
            grace_seconds=_GRACE_SECONDS,
            max_log_bytes=_LOG_BYTES,
        )

    def _start_runner(self, folder: RunFolder, instructions: Instructions) -> None:
        """Returns when the supervisor has taken over. Raises OSError, LaunchRefused."""
        package_root = str(Path(autotuner.__file__).parent.parent)
        tags = {name: instructions.env[name] for name in (TAG_NAME, TAG_FOLDER)}
        process = commands.start(
            # -S: the supervisor needs no installed package, and reading site-packages is a third of its start.
            [sys.executable, "-S", "-m", "autotuner.execution.runner", str(folder.path)],
            env=environment.inherited() | {"PYTHONPATH": package_root} | tags,
            cwd=folder.path,
            log=folder.runner_log,
            death_signal=None,
        )
        status = commands.wait_for(process, timeout_seconds=_START_SECONDS)
        if status is None:
            process.kill()
            commands.wait_for(process, timeout_seconds=1.0)
        if status != 0:
            said = folder.runner_log.read_text(encoding="utf-8", errors="replace")[-2000:].strip()
            raise LaunchRefused(f"its supervisor did not start (status {status}): {said or 'it said nothing'}")

    def _status(self, name: str) -> RunStatus:
        folder = self._folder(name)
        data = read_json(folder.outcome)
        if data is None:
            runner = folder.runner()
            if runner is not None and processes.is_alive(runner):
                return RunStatus(name=name, phase="running" if steps_done(folder.progress) else "starting")
            if not folder.was_started:
                return RunStatus(name=name, phase="unknown")
            # It may have written its outcome and ended since the first look.
            data = read_json(folder.outcome) or self._bury(folder)
        return RunStatus(name=name, phase="ended", outcome=self._outcome(folder, data))

    def _bury(self, folder: RunFolder) -> dict[str, Any]:
        """The supervisor is gone without a word: end what it left, and write that down once for all who ask."""
        killed = self._kill(folder)
        outcome = {
            "reason": "supervisor_died",
            "message": f"the run's supervisor was killed; {killed} processes that it left were ended",
        }
        with contextlib.suppress(OSError):
            write_json(folder.outcome, outcome)
        return outcome

    def _outcome(self, folder: RunFolder, data: dict[str, Any]) -> RunOutcome:
        try:
            outcome = RunOutcome.from_json(data)
        except ValidationError as error:
            return RunOutcome(reason="supervisor_died", message=f"{folder.outcome} cannot be read: {error}"[:500])
        exits = self._starter.rank_exits(launcher_tail(folder.path, max_bytes=_SUMMARY_CHARS))
        return outcome.model_copy(update={"rank_exits": exits})

    def _kill(self, folder: RunFolder) -> int:
        """SIGKILL everything that carries the run's tag."""

        def find() -> list[processes.ProcessId]:
            return [process for process, path in processes.tagged(TAG_FOLDER) if path == str(folder.path)]

        killed, _ = processes.kill_all(find, timeout_seconds=_KILL_SECONDS)
        return len(killed)

    def _strays(self, known: Collection[str]) -> list[processes.ProcessId]:
        found = []
        for process, path in processes.tagged(TAG_FOLDER):
            folder = Path(path)
            if folder.parent == self._runs_root and folder.name not in known:
                found.append(process)
        return found

    def _remove_oldest(self) -> None:
        released = [path for path in self._runs_root.glob("*/released") if path.is_file()]
        released.sort(key=lambda path: path.stat().st_mtime)
        for path in released[:-_KEPT_RUNS]:
            shutil.rmtree(path.parent, ignore_errors=True)
