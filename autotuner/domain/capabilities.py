"""What a trainer, framework or executor can really run, so that a layout is never sent where it must fail."""

from __future__ import annotations

from typing import Annotated

from autotuner.domain.base import Count, Lax, Slug, Value
from autotuner.domain.model import Norm, Position
from autotuner.domain.parallel import Recompute
from autotuner.domain.workload import Precision


class Capabilities(Value):
    """Limits of one framework; what lies outside can still be estimated."""

    framework: Slug
    precisions: Annotated[tuple[Precision, ...], Lax]
    norms: Annotated[tuple[Norm, ...], Lax]
    positions: Annotated[tuple[Position, ...], Lax]
    grouped_query_attention: bool
    gated_ffn: bool
    moe: bool
    max_virtual_stages: Count
    sequence_parallel: bool
    zero_stages: Annotated[tuple[int, ...], Lax]
    recompute: Annotated[tuple[Recompute, ...], Lax]
    max_context_parallel: Count
    max_expert_parallel: Count
    # Frameworks differ in whether stages may hold different numbers of layers.
    uneven_stages: bool
    # Megatron pads the vocabulary up to a multiple of tp; a trainer that pads by itself needs no rule about it.
    pads_vocabulary: bool
    kv_heads_replicated: bool
