"""Starts a backward pass from a tensor whose gradient is known, without keeping the tensor.

`torch.autograd.backward(tensor, gradient)` compares the two shapes symbolically, for which it imports sympy and the
compiler's front half at its first call: half a second and 35 MB in every rank of a pipeline.  From a scalar it doesn't.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class _Holder:
    """What the root's backward will start from; it knows nothing of the graph, so that no cycle keeps that alive."""

    gradient: Tensor | None = None


class _Root(torch.autograd.Function):
    """A scalar whose gradient of 1 becomes the gradient that the holder has by then."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, holder: _Holder) -> Tensor:
        ctx.holder = holder
        return output.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        given, ctx.holder.gradient = ctx.holder.gradient, None
        # Without one the output is a scalar loss, whose own gradient is 1.
        return gradients[0] if given is None else given, None


_root: Callable[..., Tensor] = _Root.apply


class BackwardRoot:
    """Where backward of `output` will begin: it holds the graph behind `output`, not its values."""

    def __init__(self, output: Tensor) -> None:
        self._holder = _Holder()
        self._scalar = _root(output, self._holder)

    def backward(self, gradient: Tensor | None) -> None:
        """Run backward once, with the gradient of `output` (same shape), or None where `output` is a scalar loss."""
        self._holder.gradient = gradient
        torch.autograd.backward(self._scalar)


def backward_from(output: Tensor, gradient: Tensor) -> None:
    """Run backward from `output` with its gradient of the same shape."""
    BackwardRoot(output).backward(gradient)
