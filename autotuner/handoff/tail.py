"""The end of a file that another process may be writing right now.

Decides how much of a file is read; what the bytes mean is the caller's business.  Standard library only and quick to
import: the process that supervises a run uses it too.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# CSI and OSC sequences (colours, titles, links) and other two-byte escapes: ECMA-48, section 5.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def read_end(path: Path, *, max_bytes: int) -> bytes:
    """The last `max_bytes` of a regular file, empty when there is none or it cannot be read."""
    try:
        # A run could put a pipe or a link to a device here: neither may block or feed the reader.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        size = os.fstat(fd).st_size
        return os.pread(fd, max_bytes, max(0, size - max_bytes))
    except OSError:
        return b""
    finally:
        os.close(fd)


def objects_from_end(path: Path, *, max_bytes: int = 65_536) -> Iterator[dict[str, Any]]:
    """The objects of a JSON-lines file, last line first; garbage and a half-written line are passed over."""
    for line in reversed(read_end(path, max_bytes=max_bytes).split(b"\n")):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value


def steps_done(path: Path) -> int:
    """Steps that `progress.jsonl` reports as done, 0 before the first one."""
    for line in objects_from_end(path):
        step = line.get("step")
        return step if isinstance(step, int) and step > 0 else 0
    return 0


def end_text(path: Path, *, max_bytes: int) -> str:
    """The end of a log as plain text of whole lines, at most `max_bytes` of it; empty when there is no log."""
    raw = read_end(path, max_bytes=max_bytes + 1)
    if len(raw) > max_bytes:
        # The first line is cut, unless it is the only one.
        raw = raw.partition(b"\n")[2] or raw[1:]
    return plain_text(raw)


def plain_text(raw: bytes) -> str:
    """Output of a process as text that is safe to show: no terminal escapes, no control characters."""
    text = raw.decode("utf-8", errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROLS.sub("", _ESCAPES.sub("", text)).strip("\n")
