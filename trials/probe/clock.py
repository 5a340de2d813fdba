"""How long an operation takes on a device: repeated for a while, and the best of it.

Other programs only ever make an operation slower, so the fastest call says most about the machine.  Where ranks share
a core that would be wrong: the fastest call is one that was not interrupted, and the mean is what each rank gets.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import fmean
from typing import Literal

import torch

Statistic = Literal["best", "mean"]


def synchronize(device: torch.device) -> None:
    """Wait for what was issued; nothing to do on a CPU."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def call_seconds(
    operation: Callable[[], object],
    *,
    device: torch.device,
    budget_seconds: float,
    max_repetitions: int,
    statistic: Statistic,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Best or mean of at least 3 timed calls after one that is not timed, stopping after about `budget_seconds`."""
    operation()
    synchronize(device)
    samples: list[float] = []
    started = clock()
    while len(samples) < 3 or (len(samples) < max_repetitions and clock() - started < budget_seconds):
        before = clock()
        operation()
        synchronize(device)
        samples.append(clock() - before)
    return min(samples) if statistic == "best" else fmean(samples)
