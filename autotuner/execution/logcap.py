"""Keeps the logs of a run small while their writers go on writing.

A file that has grown too large loses its middle: head and tail stay, what lies between becomes a hole that takes no
space.  The writers notice nothing, because offsets stay as they are.  Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

_KEEP_SIZE, _PUNCH_HOLE = 0x01, 0x02  # linux/falloc.h
_BLOCK_BYTES = 4096
_LIBC = ctypes.CDLL(None, use_errno=True)


def cap_logs(paths: Iterable[Path], *, max_bytes: int) -> None:
    """Cut every file that takes more than `max_bytes` on disk down to about half of that. Never raises OSError."""
    for path in paths:
        with contextlib.suppress(OSError):
            if path.stat(follow_symlinks=False).st_blocks * 512 > max_bytes:
                _hollow(path, keep_bytes=max_bytes // 4)


def _hollow(path: Path, *, keep_bytes: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        start = -(-keep_bytes // _BLOCK_BYTES) * _BLOCK_BYTES
        end = (size - keep_bytes) // _BLOCK_BYTES * _BLOCK_BYTES
        if end > start and not _punch(fd, start=start, length=end - start):
            # No holes on this file system: lose the whole text rather than fill the disk.
            os.ftruncate(fd, 0)
    finally:
        os.close(fd)


def _punch(fd: int, *, start: int, length: int) -> bool:
    call = _LIBC.fallocate
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return bool(call(fd, _KEEP_SIZE | _PUNCH_HOLE, start, length) == 0)
