"""The one wrapper around `subprocess`: argument lists only, no shell, no inherited descriptors or environment.

Standard library only: the supervisor of a run imports it and must start quickly.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

Process = subprocess.Popen[bytes]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> bool:
    """Make orphaned descendants our children instead of init's (prctl(2), Linux). False where it does not exist."""
    return bool(_LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def start(
    argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path, death_signal: signal.Signals | None
) -> Process:
    """Start a process in a session of its own whose output is appended to `log`. Raises OSError.

    `death_signal` is sent to it by the kernel when the calling thread ends, for whatever reason.
    """
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        return subprocess.Popen(
            list(argv),
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=fd,
            stderr=subprocess.STDOUT,
            close_fds=True,
            start_new_session=True,
            preexec_fn=None if death_signal is None else dying_with_parent(death_signal),  # noqa: PLW1509
        )
    except subprocess.SubprocessError as error:
        raise OSError(f"the process could not be prepared: {error}") from None
    finally:
        os.close(fd)


def wait_for(process: Process, *, timeout_seconds: float) -> int | None:
    """The exit status (negative: signal), or None when the time is up."""
    try:
        return process.wait(timeout_seconds)
    except subprocess.TimeoutExpired:
        return None


def dying_with_parent(death_signal: signal.Signals) -> Callable[[], None]:
    """What a child runs before its program, so that the kernel signals it when the starting thread ends (prctl(2))."""
    parent = os.getpid()

    def prepare() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
        if os.getppid() != parent:  # it died before the call
            os._exit(127)

    return prepare
