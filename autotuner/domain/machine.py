"""The machine the service runs on, as far as a job needs to know it."""

from __future__ import annotations

from autotuner.domain.base import Value


class Machine(Value):
    """`accelerators` counts devices that a rank could use; 0 means ranks run on the CPU's cores."""

    hostname: str
    cores: int
    total_memory_bytes: int
    accelerators: int = 0

    @property
    def max_local_ranks(self) -> int:
        """Ranks that may be started here at once: a few more than cores still measure something, dozens do not."""
        return self.accelerators or max(8, 2 * self.cores)
