"""Seconds by kind of work within a step: what is waited for, not what overlaps.

On CPU a span is wall time around a blocking call.  On an accelerator calls return before the work is done, so a span is
a pair of events on the current stream, read after the step's synchronisation.  Callers choose the spans.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Stopwatch:
    """Collects named spans; `drain` returns the seconds since the last drain."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._seconds: dict[str, float] = {}
        self._events: list[tuple[str, torch.Event, torch.Event]] = []

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Add the time of the block to `name`."""
        if self._device.type == "cpu":
            started = time.perf_counter()
            yield
            self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - started
            return
        before = torch.Event(self._device, enable_timing=True)
        after = torch.Event(self._device, enable_timing=True)
        before.record()
        yield
        after.record()
        self._events.append((name, before, after))

    def drain(self) -> dict[str, float]:
        """Seconds by name since the last call. The device must have been synchronised."""
        for name, before, after in self._events:
            self._seconds[name] = self._seconds.get(name, 0.0) + before.elapsed_time(after) / 1000.0
        seconds, self._seconds, self._events = self._seconds, {}, []
        return seconds
