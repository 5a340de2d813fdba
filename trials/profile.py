"""Peak memory of a rank, without what interpreter and libraries take.

On CPU: the kernel's high-water mark of resident memory, reset before the model is built, minus resident memory then,
and minus the library code first touched since (file pages; a GPU's memory holds none).  `ru_maxrss` won't do: a child
inherits its parent's.  On an accelerator: the allocator's own peaks.
"""

from __future__ import annotations

import ctypes
import resource
from dataclasses import dataclass
from pathlib import Path

import torch

STATUS = Path("/proc/self/status")


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakMemory:
    """`baseline_bytes` is not in the peaks."""

    allocated_bytes: int
    reserved_bytes: int
    baseline_bytes: int


class MemoryProfile:
    """Create it right before the model is built; `peak` may be read any time later."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        if device.type == "cpu":
            _return_freed_memory()
            _reset_high_water_mark()
            self._baseline_bytes = status_bytes("VmRSS")
            self._baseline_file_bytes = status_bytes("RssFile")
        else:
            torch.get_device_module(device).reset_peak_memory_stats()
            self._baseline_bytes = self._baseline_file_bytes = 0

    def peak(self) -> PeakMemory:
        """The peaks since the profile was created."""
        if self._device.type == "cpu":
            code_bytes = max(0, status_bytes("RssFile") - self._baseline_file_bytes)
            peak_bytes = max(0, status_bytes("VmHWM") - self._baseline_bytes - code_bytes)
            return PeakMemory(
                allocated_bytes=peak_bytes, reserved_bytes=peak_bytes, baseline_bytes=self._baseline_bytes
            )
        module = torch.get_device_module(self._device)
        return PeakMemory(
            allocated_bytes=module.max_memory_allocated(),
            reserved_bytes=module.max_memory_reserved(),
            baseline_bytes=self._baseline_bytes,
        )


def status_bytes(field: str) -> int:
    """A size as the kernel sees it (VmRSS, VmHWM, VmData, RssFile); the peak so far where there is no /proc."""
    try:
        lines = STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def _return_freed_memory() -> None:
    # glibc keeps freed blocks; without this the model would be built in what the imports left behind, uncounted.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _reset_high_water_mark() -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return  # No /proc, or a read-only one: the mark then includes the imports, which lie below the baseline anyway.
