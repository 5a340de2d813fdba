"""Units and how numbers are written for people.  No value is decided here."""

from __future__ import annotations

KIB = 1024
MIB = 1024**2
GIB = 1024**3

_BYTE_STEPS = ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))
_COUNT_STEPS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))


def format_bytes(num_bytes: float) -> str:
    """`format_bytes(3 * 2**30)` gives '3.00 GiB'."""
    for size, unit in _BYTE_STEPS:
        if abs(num_bytes) >= size:
            return f"{num_bytes / size:.2f} {unit}"
    return f"{num_bytes:.0f} B"


def format_seconds(seconds: float) -> str:
    """`format_seconds(0.0123)` gives '12.3 ms'."""
    if abs(seconds) < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    if abs(seconds) < 1:
        return f"{seconds * 1e3:.1f} ms"
    if abs(seconds) < 120:
        return f"{seconds:.2f} s"
    if abs(seconds) < 7200:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def format_count(count: float) -> str:
    """`format_count(1_300_000_000)` gives '1.30B'."""
    for size, suffix in _COUNT_STEPS:
        if abs(count) >= size:
            return f"{count / size:.2f}{suffix}"
    return f"{count:.0f}"
