"""Finding and ending processes by /proc: a tree by its root, a run's leftovers by a tag in their environment.

Decides nothing about which runs should live.  A process is named by pid *and* start time, because pids are used again.
Linux only; standard library only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_SCAN_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process for ever: the same pid with another start time, or after another boot, is another process."""

    pid: int
    start_ticks: int


@dataclass(frozen=True, slots=True)
class _Stat:
    id: ProcessId
    parent: int
    state: str


def boot_id() -> str:
    """Identifies the running boot of this machine; empty where the kernel does not say."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def oom_kills() -> int:
    """Processes the kernel has killed for lack of memory since boot, on the whole machine; 0 if it does not count."""
    with contextlib.suppress(OSError, ValueError):
        for line in (_PROC / "vmstat").read_text(encoding="ascii").splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    return 0


def identify(pid: int) -> ProcessId | None:
    """The process that has this pid now; None when there is none, or only its exit status is left."""
    stat = _stat(pid)
    return None if stat is None or stat.state in "ZX" else stat.id


def is_alive(process: ProcessId) -> bool:
    """Whether exactly this process still runs."""
    return identify(process.pid) == process


def descendants(root: int) -> list[ProcessId]:
    """Every living process below `root`, wherever sessions and process groups put it."""
    children: dict[int, list[_Stat]] = {}
    for stat in _all():
        children.setdefault(stat.parent, []).append(stat)
    found: list[ProcessId] = []
    pending = [root]
    while pending:
        for stat in children.get(pending.pop(), ()):
            pending.append(stat.id.pid)
            if stat.state not in "ZX":
                found.append(stat.id)
    return found


def tagged(variable: str) -> Iterator[tuple[ProcessId, str]]:
    """Own processes that were started with this environment variable, with its value; never the caller."""
    prefix = f"{variable}=".encode()
    for stat in _all():
        if stat.id.pid == os.getpid() or stat.state in "ZX":
            continue
        with contextlib.suppress(OSError):
            folder = _PROC / str(stat.id.pid)
            if folder.stat().st_uid != os.geteuid():
                continue
            for entry in (folder / "environ").read_bytes().split(b"\0"):
                if entry.startswith(prefix):
                    yield stat.id, os.fsdecode(entry[len(prefix) :])
                    break


def send(process: ProcessId, what: signal.Signals) -> bool:
    """Send a signal to exactly this process; False when it is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        fd = os.pidfd_open(process.pid)
        try:
            # The descriptor pins the process: if the start time still fits, no other one can be hit.
            if not is_alive(process):
                return False
            signal.pidfd_send_signal(fd, what)
            return True
        finally:
            os.close(fd)
    return False


def kill_all(
    find: Callable[[], list[ProcessId]], *, timeout_seconds: float, after_each: Callable[[], None] | None = None
) -> tuple[set[ProcessId], list[ProcessId]]:
    """SIGKILL what `find` finds until it finds nothing twice in a row. The killed ones, and those that would not die.

    A process stuck in the kernel ignores SIGKILL, so the wait is bounded.  `after_each` reaps between rounds.
    """
    killed: set[ProcessId] = set()
    deadline = time.monotonic() + timeout_seconds
    quiet = 0
    while True:
        left = find()
        # Between fork and exec a process may be missed by one scan.
        quiet = 0 if left else quiet + 1
        if quiet == 2 or time.monotonic() > deadline:
            return killed, left
        killed.update(process for process in left if send(process, signal.SIGKILL))
        time.sleep(_SCAN_SECONDS)
        if after_each is not None:
            after_each()


def _all() -> Iterator[_Stat]:
    for name in os.listdir(_PROC):  # noqa: PTH208 - names are all that is needed, and this is the hot loop
        if name.isdecimal() and (stat := _stat(int(name))) is not None:
            yield stat


def _stat(pid: int) -> _Stat | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        # The name in parentheses may hold anything, so the fields are counted from its end (proc(5)).
        fields = text.rpartition(")")[2].split()
        return _Stat(ProcessId(pid, int(fields[19])), parent=int(fields[1]), state=fields[0])
    except (OSError, ValueError, IndexError):
        return None
