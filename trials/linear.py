"""Linear layers cut over the tensor-parallel group (Shoeybi et al. 2019, section 3).

Shapes: n tokens (any leading dimensions), i inputs, o outputs, t ranks.  The weight gradient is added to the flat fp32
buffer inside the matrix product, and the sum of the input gradient over the group runs meanwhile.  These layers decide
where communication happens in a block; they do not decide what a block is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from trials.collectives import Group
from trials.parameters import ShardedParameter, accumulate_product_


class _Linear(torch.autograd.Function):
    """y = sum over `output_group` of x W^T, plus bias; the input gradient is summed over `input_group`."""

    @staticmethod
    def forward(  # noqa: PLR0917 - autograd functions take positional arguments only
        ctx: Any,
        inputs: Tensor,
        weight: ShardedParameter,
        bias: ShardedParameter | None,
        input_group: Group | None,
        output_group: Group | None,
    ) -> Tensor:
        ctx.save_for_backward(inputs)
        ctx.weight, ctx.bias, ctx.input_group = weight, bias, input_group
        if output_group is None or output_group.size == 1:
            return functional.linear(inputs, weight, bias)
        outputs = output_group.all_reduce_(functional.linear(inputs, weight))
        return outputs if bias is None else outputs.add_(bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (inputs,) = ctx.saved_tensors
        weight, bias, input_group = ctx.weight, ctx.bias, ctx.input_group
        outputs_grad = gradients[0].reshape(-1, gradients[0].shape[-1])
        inputs_grad = outputs_grad @ weight
        work = None if input_group is None else input_group.start_all_reduce_(inputs_grad)
        accumulate_product_(weight, outputs_grad, inputs.reshape(-1, inputs.shape[-1]), rows=outputs_grad.shape[-1])
        if bias is not None:
            bias.main_grad.add_(outputs_grad.sum(0))
        if input_group is not None:
            input_group.finish(work)
        return inputs_grad.view(inputs.shape), None, None, None, None


_linear: Callable[..., Tensor] = _Linear.apply


class ColumnParallelLinear(nn.Module):
    """Outputs are cut: [n, i] on every rank -> [n, o / t]. Weight [o / t, i], bias [o / t].

    Backward sums the input gradient over the group (f).
    """

    def __init__(self, weight: ShardedParameter, bias: ShardedParameter | None, *, group: Group) -> None:
        super().__init__()
        self.weight, self.bias, self._group = weight, bias, group

    def forward(self, inputs: Tensor) -> Tensor:
        """[n, i] -> [n, o / t]."""
        return _linear(inputs, self.weight, self.bias, self._group, None)


class RowParallelLinear(nn.Module):
    """Inputs are cut: [n, i / t] -> [n, o] on every rank. Weight [o, i / t], bias [o] on every rank.

    Forward sums over the group (g), the bias is added once, after the sum.
    """

    def __init__(self, weight: ShardedParameter, bias: ShardedParameter | None, *, group: Group) -> None:
        super().__init__()
        self.weight, self.bias, self._group = weight, bias, group

    def forward(self, inputs: Tensor) -> Tensor:
        """[n, i / t] -> [n, o]."""
        return _linear(inputs, self.weight, self.bias, None, self._group)
