"""Which layers a pipeline stage holds.  Standard library only: trainer and cost model must agree to the layer.

The rule for any number of layers L over n = pp x virtual_stages chunks (n <= L): every chunk gets L // n layers; the
L % n left over go one each to chunks 1, 2, ..., n-2, then 0, then n-1.  The ends come last because the first chunk
also holds the embedding and the last one the head and the loss.  Chunk c runs on stage c % pp (Megatron-LM's
interleaved assignment; Narayanan et al. 2021, section 2.2).
"""

from __future__ import annotations


def chunk_sizes(num_layers: int, *, pp: int, virtual_stages: int = 1) -> list[int]:
    """Layers of each chunk in model order. Raises ValueError when a chunk would be empty."""
    num_chunks = pp * virtual_stages
    if num_chunks > num_layers:
        raise ValueError(f"{num_chunks} pipeline chunks need at least as many layers, and there are {num_layers}")
    base, extra = divmod(num_layers, num_chunks)
    sizes = [base] * num_chunks
    order = [*range(1, num_chunks - 1), 0, num_chunks - 1]
    for chunk in order[:extra]:
        sizes[chunk] += 1
    return sizes


def stage_chunks(num_layers: int, *, pp: int, stage: int, virtual_stages: int = 1) -> list[range]:
    """The layer ranges that one stage holds, one for each of its virtual stages, in model order."""
    sizes = chunk_sizes(num_layers, pp=pp, virtual_stages=virtual_stages)
    starts = [sum(sizes[:chunk]) for chunk in range(len(sizes))]
    return [range(starts[c], starts[c] + sizes[c]) for c in range(stage, len(sizes), pp)]


def stage_sizes(num_layers: int, *, pp: int, virtual_stages: int = 1) -> list[int]:
    """Layers that each stage holds in all."""
    sizes = chunk_sizes(num_layers, pp=pp, virtual_stages=virtual_stages)
    return [sum(sizes[stage::pp]) for stage in range(pp)]
