"""Starts a backward pass from a tensor whose gradient is known.

`torch.autograd.backward(tensor, gradient)` compares the two shapes symbolically, for which it imports sympy and the
compiler's front half at its first call: half a second and 35 MB in every rank of a pipeline.  From a scalar it doesn't.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class _Root(torch.autograd.Function):
    """A scalar whose gradient of 1 becomes the given gradient of `output`."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return output.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *_gradients: Any) -> Any:
        return ctx.saved_tensors[0], None


_root: Callable[..., Tensor] = _Root.apply


def backward_from(output: Tensor, gradient: Tensor | None) -> None:
    """Run backward from `output` with its gradient (same shape), or from a scalar loss, whose gradient is 1."""
    torch.autograd.backward(output if gradient is None else _root(output, gradient))
