"""How long a collective takes over a link: the alpha-beta model of ring algorithms.

n participants, S bytes of the full tensor, alpha seconds of latency a hop, beta bytes per second (Thakur et al. 2005,
table 1).  Decides nothing about which link a group uses or whether the time is hidden.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Operation = Literal["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "send"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What one group's ring gets: bandwidth and latency [n]; `launch_seconds` is paid once a call."""

    bandwidth_bytes_per_second: Floats
    latency_seconds: Floats
    launch_seconds: float

    def seconds(self, operation: Operation, *, num_bytes: Any, participants: Any) -> Floats:
        """Seconds of one call, 0 where there is nobody to talk to. `num_bytes` is the full tensor; all broadcast.

        all_reduce: the better of a ring, 2(n-1) alpha + 2(n-1)/n S/beta, and of a tree, 2 log2(n) alpha + 2 S/beta.
        reduce_scatter, all_gather: (n-1) alpha + (n-1)/n S/beta.  all_to_all: the same bytes, exchanged at once.
        send: alpha + S/beta.
        """
        size = np.asarray(participants, dtype=np.float64)
        transfer = np.asarray(num_bytes, dtype=np.float64) / self.bandwidth_bytes_per_second
        others = size - 1
        if operation == "send":
            seconds = self.latency_seconds + transfer
        elif operation == "all_to_all":
            seconds = self.latency_seconds + others / size * transfer
        elif operation == "all_reduce":
            ring = 2 * others * self.latency_seconds + 2 * others / size * transfer
            tree = 2 * np.log2(size) * self.latency_seconds + 2 * transfer
            seconds = np.minimum(ring, tree)
        else:
            seconds = others * self.latency_seconds + others / size * transfer
        return np.where(size > 1, seconds + self.launch_seconds, 0.0)
