"""Which layouts may be tried: allowed values for each axis, or "derive" for every value that makes sense."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from autotuner.domain.base import DERIVE, BatchSize, Derived, Fraction, Lax, Value
from autotuner.domain.parallel import Degree, Recompute

Degrees = Annotated[tuple[Degree, ...], Lax, Field(min_length=1, max_length=64)]
BatchSizes = Annotated[tuple[BatchSize, ...], Lax, Field(min_length=1, max_length=64)]
ZeroStages = Annotated[tuple[Annotated[int, Field(ge=0, le=3)], ...], Lax, Field(min_length=1, max_length=4)]
Recomputes = Annotated[tuple[Recompute, ...], Lax, Field(min_length=1, max_length=3)]
Switches = Annotated[tuple[bool, ...], Lax, Field(min_length=1, max_length=2)]
Keys = Annotated[tuple[Annotated[str, Field(max_length=120)], ...], Lax, Field(max_length=10_000)]


class SearchSpace(Value):
    """A single allowed value pins the axis; `excluded` holds layout keys that must not be tried.

    `memory_headroom` is the share of device memory that a layout must leave free by estimate.
    """

    tp: Degrees | Derived = DERIVE
    pp: Degrees | Derived = DERIVE
    dp: Degrees | Derived = DERIVE
    cp: Degrees | Derived = DERIVE
    ep: Degrees | Derived = DERIVE
    micro_batch_size: BatchSizes | Derived = DERIVE
    virtual_stages: Degrees | Derived = DERIVE
    sequence_parallel: Switches | Derived = DERIVE
    zero_stage: ZeroStages | Derived = DERIVE
    recompute: Recomputes | Derived = DERIVE
    excluded: Keys = ()
    memory_headroom: Fraction = 0.0
    # A layout is dropped before it is tried only when it surely does not fit.
    min_probability_fits: Annotated[float, Field(ge=0, le=1)] = 0.02
