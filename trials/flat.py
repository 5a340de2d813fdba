"""All parameters of a rank in flat buffers: weights, fp32 gradients and, in bf16, a working copy of the weights.

One buffer of each kind means one optimizer call, large all-reduces and no copy before them.  Matrices come first, so
that weight decay is one contiguous region.  It decides the order; what is done with the buffers is up to others.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from trials.parameters import ShardedParameter, draw_

# Every parameter starts on a cache line; the gaps hold zeros, which change neither norms nor updates.
ALIGNMENT_ELEMENTS = 16


class FlatParameters:
    """Takes over the storage of `parameters` (each once), draws their values and gives them their gradient views.

    `weights` and `gradients` are fp32 [n]; `compute` is what the layers see: `weights` itself in fp32, a copy in bf16.
    """

    def __init__(self, parameters: list[ShardedParameter], *, dtype: torch.dtype, device: torch.device) -> None:
        # A stable sort: within matrices and within vectors the model's order stays.
        self.parameters = sorted(parameters, key=lambda p: len(p.placement.shape) < 2)
        self.offsets: list[int] = []
        total = self.num_decayed = 0
        for parameter in self.parameters:
            self.offsets.append(total)
            elements = _elements(parameter)
            total += -(-elements // ALIGNMENT_ELEMENTS) * ALIGNMENT_ELEMENTS
            if len(parameter.placement.shape) >= 2:
                self.num_decayed = total
        self.weights = torch.zeros(total, device=device)
        self.gradients = torch.zeros(total, device=device)
        self.compute = self.weights if dtype == torch.float32 else torch.zeros(total, device=device, dtype=dtype)
        for parameter, offset in zip(self.parameters, self.offsets, strict=True):
            self._bind(parameter, offset)

    def _bind(self, parameter: ShardedParameter, offset: int) -> None:
        shape = parameter.placement.local_shape
        region = slice(offset, offset + _elements(parameter))
        parameter.data = self.compute[region].view(shape)
        parameter.main_grad = self.gradients[region].view(shape)
        if self.compute is self.weights:
            # What autograd itself accumulates (norms, positions) then goes straight into the flat buffer.
            parameter.grad = parameter.main_grad
        else:
            register: Callable[[Callable[[Tensor], None]], object] = parameter.register_post_accumulate_grad_hook
            register(_move_gradient)

    def draw(self, *, seed: int) -> None:
        """Give every parameter its first values."""
        for parameter, offset in zip(self.parameters, self.offsets, strict=True):
            part = self.weights[offset : offset + _elements(parameter)].view(parameter.placement.local_shape)
            draw_(part, parameter.placement, parameter.initial, seed=seed)
        self.refresh_compute()

    def refresh_compute(self) -> None:
        """Bring the layers' copy up to date after the weights changed."""
        if self.compute is not self.weights:
            self.compute.copy_(self.weights)

    def counted_segments(self) -> list[Tensor]:
        """Views of the gradients that count on this rank: over tensor and pipeline ranks each element occurs once."""
        bounds: list[list[int]] = []
        for parameter, offset in zip(self.parameters, self.offsets, strict=True):
            placement = parameter.placement
            length = _elements(parameter) // placement.local_shape[0] * placement.counted_rows
            if length == 0:
                continue
            if bounds and offset - bounds[-1][1] < ALIGNMENT_ELEMENTS:
                bounds[-1][1] = offset + length
            else:
                bounds.append([offset, offset + length])
        return [self.gradients[start:stop] for start, stop in bounds]

    @property
    def num_local_parameters(self) -> int:
        """Elements that this rank holds, copies and padding included."""
        return sum(_elements(parameter) for parameter in self.parameters)


def _elements(parameter: ShardedParameter) -> int:
    elements = 1
    for extent in parameter.placement.local_shape:
        elements *= extent
    return elements


def _move_gradient(parameter: Tensor) -> None:
    assert isinstance(parameter, ShardedParameter)  # noqa: S101 - for the type checker: only these are registered
    if parameter.grad is not None:
        parameter.main_grad.add_(parameter.grad)
        parameter.grad = None
