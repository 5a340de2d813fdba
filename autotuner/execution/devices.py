"""How a machine's cores are shared out among the ranks of a run."""

from __future__ import annotations

import os

from autotuner.domain.errors import InvalidInput


def usable_cores() -> int:
    """Cores that this process may use: its affinity, which container and scheduler limits narrow."""
    return len(os.sched_getaffinity(0))


def threads_per_rank(*, cores: int, ranks: int) -> int:
    """Threads of one rank: all cores are used when that is possible and none is used twice. Raises InvalidInput."""
    if cores < 1 or ranks < 1:
        raise InvalidInput(f"{ranks} ranks cannot share {cores} cores; both must be at least 1")
    return max(1, cores // ranks)
