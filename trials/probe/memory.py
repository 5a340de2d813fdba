"""How fast a rank streams through memory that no cache holds."""

from __future__ import annotations

from collections.abc import Callable

import torch

from trials.probe.clock import Statistic, call_seconds

_BYTES_CPU = 64 * 1024 * 1024
_BYTES_ACCELERATOR = 1024 * 1024 * 1024
_BUDGET_SECONDS = 0.1
_MAX_REPETITIONS = 20


class Streams:
    """Three vectors, allocated and touched once."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        elements = (_BYTES_CPU if device.type == "cpu" else _BYTES_ACCELERATOR) // 4
        self._a, self._b, self._c = (torch.ones(elements, device=device) for _ in range(3))

    def copy_bytes_per_second(self, *, statistic: Statistic) -> float:
        """One vector read and one written."""
        return 2.0 * self._nbytes / self._seconds(lambda: self._b.copy_(self._a), statistic=statistic)

    def add_bytes_per_second(self, *, statistic: Statistic) -> float:
        """Two vectors read and one written."""
        return 3.0 * self._nbytes / self._seconds(lambda: torch.add(self._a, self._b, out=self._c), statistic=statistic)

    @property
    def _nbytes(self) -> int:
        return self._a.numel() * self._a.element_size()

    def _seconds(self, operation: Callable[[], object], *, statistic: Statistic) -> float:
        return call_seconds(
            operation,
            device=self._device,
            budget_seconds=_BUDGET_SECONDS,
            max_repetitions=_MAX_REPETITIONS,
            statistic=statistic,
        )
