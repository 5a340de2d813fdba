"""AdamW (Loshchilov and Hutter 2019) over the flat buffers; decay on matrices only.

`torch.optim.adamw.adamw` is the documented functional form: torch's optimizer classes would import the compiler, which
takes longer than a short trial's steps.  The learning rate is constant: a profile of a few steps has no schedule.
"""

from __future__ import annotations

import torch
from torch.optim.adamw import adamw

from trials.contract import Training
from trials.flat import FlatParameters


class AdamW:
    """State and update of one rank's parameters."""

    def __init__(self, flat: FlatParameters, *, training: Training) -> None:
        self._flat, self._training = flat, training
        self._average = torch.zeros_like(flat.weights)
        self._square_average = torch.zeros_like(flat.weights)
        cut = flat.num_decayed
        regions = [(slice(0, cut), training.weight_decay), (slice(cut, None), 0.0)]
        self._regions = [(region, decay) for region, decay in regions if flat.weights[region].numel()]
        self._steps = [torch.zeros((), device=flat.weights.device) for _ in self._regions]

    def step(self, *, grad_norm: float) -> None:
        """One update. A norm above `clip_norm` (if not 0) scales the gradients down to it."""
        clip = self._training.clip_norm
        # The fused kernel divides gradients by this scale in the same pass.
        divisor = grad_norm / clip if 0.0 < clip < grad_norm else 1.0
        scale = None if divisor == 1.0 else torch.tensor(divisor, device=self._flat.weights.device)
        with torch.no_grad():
            for (region, decay), steps in zip(self._regions, self._steps, strict=True):
                self._update(region, decay=decay, steps=steps, scale=scale)
        self._flat.refresh_compute()

    def _update(self, region: slice, *, decay: float, steps: torch.Tensor, scale: torch.Tensor | None) -> None:
        adamw(
            [self._flat.weights[region]],
            [self._flat.gradients[region]],
            [self._average[region]],
            [self._square_average[region]],
            [],
            [steps],
            foreach=False,
            fused=True,
            grad_scale=scale,
            amsgrad=False,
            beta1=self._training.beta1,
            beta2=self._training.beta2,
            lr=self._training.learning_rate,
            weight_decay=decay,
            eps=self._training.epsilon,
            maximize=False,
        )
