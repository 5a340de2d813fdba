"""What is thrown away in forward and computed again in backward (Korthikanti et al. 2022, section 5).

`full` keeps only a block's input, `selective` everything but the attention core.  It decides how, the request which.
`torch.utils.checkpoint` would import the compiler at its first call: a second and 70 MB more than a short trial needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from trials.backward import backward_from

Recompute = Literal["none", "selective", "full"]


class _Recomputed(torch.autograd.Function):
    """A function of tensors of which only the inputs are kept; nothing in it may be random.

    Backward runs it again with a graph and goes through that graph, so parameters inside get their gradients as usual.
    """

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        ctx.function = function
        ctx.save_for_backward(*inputs)
        return function(*inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        inputs = [saved.detach().requires_grad_(saved.requires_grad) for saved in ctx.saved_tensors]
        with torch.enable_grad():
            output = ctx.function(*inputs)
            backward_from(output, gradients[0])
        return None, *(tensor.grad for tensor in inputs)


_recomputed: Callable[..., Tensor] = _Recomputed.apply


def run_block(block: Callable[[Tensor], Tensor], hidden: Tensor, *, mode: Recompute) -> Tensor:
    """block(hidden), kept or recomputed."""
    return _recomputed(block, hidden) if mode == "full" else block(hidden)


def run_attention(
    core: Callable[[Tensor, Tensor, Tensor], Tensor], query: Tensor, key: Tensor, value: Tensor, *, mode: Recompute
) -> Tensor:
    """core(query, key, value), kept or recomputed."""
    return _recomputed(core, query, key, value) if mode == "selective" else core(query, key, value)
