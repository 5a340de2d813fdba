"""The supervisor of one run: `python -m autotuner.execution.runner RUN_DIR`.

It starts the launch command, watches deadlines and the request to cancel, ends every process of the run and writes how
it ended.  It outlives the worker that started it, so a crash of the worker loses no result; the run does not outlive
it, because the kernel ends the launch command with it and the executor then kills what carries the run's tag.
What the end means for the trial is decided elsewhere.  Standard library only, so that it starts in some 60 ms.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotuner.execution import commands, processes
from autotuner.execution.logcap import cap_logs
from autotuner.execution.rundir import Instructions, RunFolder, write_json
from autotuner.execution.watch import Watch

_TICK_SECONDS = 0.25
_HOUSEKEEPING_SECONDS = 2.0
_KILL_SECONDS = 10.0
_WRITE_ATTEMPTS = 20
_WRITE_PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    reason: str
    message: str
    code: int | None = None


class Supervisor:
    """One run from its start to its written outcome."""

    def __init__(self, folder: RunFolder, instructions: Instructions, *, bell: Bell) -> None:
        self._folder = folder
        self._instructions = instructions
        self._bell = bell
        self._started = time.monotonic()
        self._oom_kills = processes.oom_kills()

    def run(self) -> None:
        """Supervise until no process of the run is left, then write the outcome. Raises OSError if it cannot."""
        order = self._instructions
        try:
            launcher = commands.start(
                order.argv,
                env=order.env,
                cwd=self._folder.path,
                log=self._folder.launcher_log,
                death_signal=signal.SIGTERM,
            )
        except (OSError, ValueError) as error:
            self._write(_End(reason="not_started", message=f"{order.argv[0]} could not be started: {error}"), left=0)
            return
        end = self._watch(launcher)
        left = self._end_all(launcher)
        self._write(end, left=left)

    def _watch(self, launcher: commands.Process) -> _End:
        """Until the launcher ends or has to be ended."""
        now = time.monotonic()
        watch = Watch(self._instructions, progress=self._folder.progress, now=now)
        exit_fd = os.pidfd_open(launcher.pid)
        next_housekeeping = now
        try:
            while True:
                code = launcher.poll()
                if code is not None:
                    return _End(reason="exited", message="", code=code)
                if (asked := self._cancelled()) is not None:
                    return asked
                now = time.monotonic()
                if (broken := watch.broken_deadline(now)) is not None:
                    return _End(reason=broken[0], message=broken[1])
                if now >= next_housekeeping:
                    next_housekeeping = now + _HOUSEKEEPING_SECONDS
                    self._keep_house(launcher)
                select.select([exit_fd, self._bell.fd], [], [], _TICK_SECONDS)
        finally:
            os.close(exit_fd)

    def _cancelled(self) -> _End | None:
        if self._folder.cancel.exists():
            return _End(reason="cancelled", message="cancelled on request")
        if self._bell.rung:
            return _End(reason="cancelled", message="the supervisor was told to end by a signal")
        if not self._folder.path.is_dir():
            return _End(reason="cancelled", message="the run's folder was removed")
        return None

    def _keep_house(self, launcher: commands.Process) -> None:
        cap_logs(self._folder.logs(), max_bytes=self._instructions.max_log_bytes)
        # Orphans of the run become our children; only they are reaped, the launcher's status is not ours to take.
        for child in _children_of_this_process():
            if child != launcher.pid:
                _reap(child)

    def _end_all(self, launcher: commands.Process) -> int:
        """SIGTERM to the launcher, a grace period, SIGKILL to everything. How many processes would not die."""
        if launcher.poll() is None:
            launcher.send_signal(signal.SIGTERM)
            commands.wait_for(launcher, timeout_seconds=self._instructions.grace_seconds)
        _, left = processes.kill_all(
            lambda: processes.descendants(os.getpid()),
            timeout_seconds=_KILL_SECONDS,
            after_each=lambda: self._reap_all(launcher),
        )
        return len(left)

    @staticmethod
    def _reap_all(launcher: commands.Process) -> None:
        if launcher.poll() is None:
            return
        while _reap(-1):
            pass

    def _write(self, end: _End, *, left: int) -> None:
        code = end.code
        outcome: dict[str, Any] = {
            "reason": end.reason,
            "message": end.message + (f"; {left} processes cannot be killed" if left else ""),
            "exit_code": code if code is not None and code >= 0 else None,
            "signal": -code if code is not None and code < 0 else None,
            "seconds": round(time.monotonic() - self._started, 3),
            "oom_kills": max(0, processes.oom_kills() - self._oom_kills),
        }
        cap_logs(self._folder.logs(), max_bytes=self._instructions.max_log_bytes)
        _persist(lambda: write_json(self._folder.outcome, outcome), make_room=self._make_room)

    def _make_room(self) -> None:
        """On a full disk the outcome is worth more than the logs."""
        cap_logs(self._folder.logs(), max_bytes=64 * 1024)


class Bell:
    """Remembers that a signal asked us to end, and wakes the wait by a readable descriptor."""

    def __init__(self) -> None:
        self.rung = False
        self.fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._ring)

    def _ring(self, _number: int, _frame: object) -> None:
        self.rung = True


def _persist(write: Callable[[], None], *, make_room: Callable[[], None]) -> None:
    for attempt in range(_WRITE_ATTEMPTS):
        try:
            write()
        except FileNotFoundError:
            return  # the folder is gone: nobody is left to tell
        except OSError:
            if attempt == _WRITE_ATTEMPTS - 1:
                raise
            make_room()
            time.sleep(_WRITE_PAUSE_SECONDS)
        else:
            return


def _children_of_this_process() -> list[int]:
    try:
        text = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    except OSError:  # a kernel without it: orphans are reaped at the end
        return []
    return [int(word) for word in text.split()]


def _reap(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


def _detach() -> Callable[[], None]:
    """Go on in a child that belongs to nobody; the starting process ends once the returned function is called.

    Its status tells whether that happened, so whoever started us knows that the run is supervised.
    """
    ready_read, ready_write = os.pipe()
    if os.fork() > 0:
        os.close(ready_write)
        is_ready = os.read(ready_read, 1) == b"1"
        os._exit(0 if is_ready else 1)
    os.close(ready_read)
    os.setsid()

    def tell() -> None:
        os.write(ready_write, b"1")
        os.close(ready_write)

    return tell


def main(arguments: list[str]) -> int:
    """Supervise the run in the folder that is named. Exit status 1 when its outcome could not be written."""
    os.umask(0o077)
    folder = RunFolder(path=Path(arguments[0]))
    instructions = folder.read_instructions()
    tell = _detach()
    bell = Bell()
    commands.become_subreaper()
    me = processes.identify(os.getpid())
    if me is None:
        return 1
    folder.write_runner(me)
    tell()
    try:
        Supervisor(folder, instructions, bell=bell).run()
    except OSError:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
