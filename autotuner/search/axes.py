"""The values that each axis of a layout may take: the user's list, or what makes sense where it says "derive".

Decides single axes only; which combinations are legal is decided by the rules in `feasibility.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotuner.domain.base import DERIVE
from autotuner.domain.capabilities import Capabilities
from autotuner.domain.job import TuningJob
from autotuner.domain.parallel import Recompute
from autotuner.search.columns import RECOMPUTES

# Between powers of two, micro-batches differ by too little to be worth a measurement once they are large.
MAX_ANY_MICRO_BATCH = 16
MAX_POWER_OF_TWO_MICRO_BATCH = 256
# Each virtual stage adds as much pipeline communication as the first one and saves less bubble than the one before.
MAX_DERIVED_VIRTUAL_STAGES = 16


@dataclass(frozen=True, kw_only=True)
class Axes:
    """Allowed values of each axis, ascending. An empty `dp` means that it follows from the number of devices."""

    tp: tuple[int, ...]
    pp: tuple[int, ...]
    dp: tuple[int, ...]
    cp: tuple[int, ...]
    ep: tuple[int, ...]
    virtual_stages: tuple[int, ...]
    micro_batch_size: tuple[int, ...]
    sequence_parallel: tuple[bool, ...]
    zero_stage: tuple[int, ...]
    recompute: tuple[Recompute, ...]

    def num_combinations(self) -> int:
        """How many layouts the axes span, legal or not."""
        sizes = (self.tp, self.pp, self.dp or (0,), self.cp, self.ep, self.virtual_stages, self.micro_batch_size)
        switches = (self.sequence_parallel, self.zero_stage, self.recompute)
        count = 1
        for values in (*sizes, *switches):
            count *= len(values)
        return count


def axes_of(job: TuningJob, *, capabilities: Capabilities) -> Axes:
    """The axes of a job's search space under what its framework can run. Never empty, except `dp`."""
    space, model = job.space, job.model
    world_size, recomputes = job.cluster.world_size, capabilities.recompute
    return Axes(
        tp=_derive_tp(job) if space.tp == DERIVE else _ascending(space.tp),
        pp=_derive_pp(world_size, num_layers=model.num_layers) if space.pp == DERIVE else _ascending(space.pp),
        dp=() if space.dp == DERIVE else _ascending(space.dp),
        cp=(1,) if space.cp == DERIVE else _ascending(space.cp),
        ep=(1,) if space.ep == DERIVE else _ascending(space.ep),
        virtual_stages=(
            derive_virtual_stages(model.num_layers, capabilities=capabilities)
            if space.virtual_stages == DERIVE
            else _ascending(space.virtual_stages)
        ),
        micro_batch_size=(
            derive_micro_batch_sizes(job.workload.global_batch_size)
            if space.micro_batch_size == DERIVE
            else _ascending(space.micro_batch_size)
        ),
        sequence_parallel=_switches(space.sequence_parallel, supported=capabilities.sequence_parallel),
        zero_stage=_ascending(capabilities.zero_stages if space.zero_stage == DERIVE else space.zero_stage),
        recompute=tuple(r for r in RECOMPUTES if r in (recomputes if space.recompute == DERIVE else space.recompute)),
    )


def divisors(number: int) -> tuple[int, ...]:
    """All divisors, ascending: `divisors(12)` is (1, 2, 3, 4, 6, 12)."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


def derive_micro_batch_sizes(global_batch_size: int) -> tuple[int, ...]:
    """Divisors of the global batch: all up to 16, then powers of two up to 256."""
    return tuple(
        d
        for d in divisors(global_batch_size)
        if d <= MAX_ANY_MICRO_BATCH or (d <= MAX_POWER_OF_TWO_MICRO_BATCH and d & (d - 1) == 0)
    )


def derive_virtual_stages(num_layers: int, *, capabilities: Capabilities) -> tuple[int, ...]:
    """1, then divisors of the layers (and powers of two where stages may be uneven) that leave two stages a layer."""
    limit = min(capabilities.max_virtual_stages, num_layers // 2, MAX_DERIVED_VIRTUAL_STAGES)
    fitting = [
        v for v in range(2, limit + 1) if num_layers % v == 0 or (capabilities.uneven_stages and v & (v - 1) == 0)
    ]
    return (1, *fitting)


def _derive_tp(job: TuningJob) -> tuple[int, ...]:
    """Divisors of heads and devices up to one node: beyond it every layer waits for a slow link, so a user must ask."""
    world_size = job.cluster.world_size
    return tuple(d for d in divisors(job.model.num_heads) if d <= job.cluster.devices_per_node and world_size % d == 0)


def _derive_pp(world_size: int, *, num_layers: int) -> tuple[int, ...]:
    return tuple(d for d in divisors(world_size) if d <= num_layers)


def _ascending(values: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(set(values)))


def _switches(values: tuple[bool, ...] | str, *, supported: bool) -> tuple[bool, ...]:
    if isinstance(values, tuple):
        return tuple(sorted(set(values)))
    return (False, True) if supported else (False,)
