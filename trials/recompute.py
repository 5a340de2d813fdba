"""What is thrown away in forward and computed again in backward (Korthikanti et al. 2022, section 5).

`full` keeps only a block's input, `selective` everything but the attention core.  It decides how, the request which.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor
from torch.utils.checkpoint import checkpoint

Recompute = Literal["none", "selective", "full"]


def run_block(block: Callable[[Tensor], Tensor], hidden: Tensor, *, mode: Recompute) -> Tensor:
    """block(hidden), kept or recomputed."""
    if mode != "full":
        return block(hidden)
    # Nothing in a block is random, so there is no generator state to restore.
    result: Tensor = checkpoint(block, hidden, use_reentrant=False, preserve_rng_state=False)
    return result


def run_attention(
    core: Callable[[Tensor, Tensor, Tensor], Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mode: Recompute,
) -> Tensor:
    """core(query, key, value), kept or recomputed."""
    if mode != "selective":
        return core(query, key, value)
    result: Tensor = checkpoint(core, query, key, value, use_reentrant=False, preserve_rng_state=False)
    return result
