"""How fast matrix products are on this device: large ones, and ones with a small inner dimension."""

from __future__ import annotations

import torch

from trials.probe.clock import Statistic, call_seconds

# [m, k] x [k, n].  Square products show the peak; the others how a small inner dimension lowers the rate.
SHAPES_CPU = ((512, 512, 512), (1024, 1024, 1024), (1024, 512, 256), (1024, 1024, 64), (1024, 1024, 32))
SHAPES_ACCELERATOR = ((4096, 4096, 4096), (8192, 8192, 8192), (8192, 8192, 1024), (8192, 8192, 256), (8192, 8192, 64))
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}
_BUDGET_SECONDS = 0.05
_MAX_REPETITIONS = 50


def shapes_for(device: torch.device) -> tuple[tuple[int, int, int], ...]:
    """The products (m, n, k) that suit a kind of device."""
    return SHAPES_CPU if device.type == "cpu" else SHAPES_ACCELERATOR


def gemm_flops_per_second(
    m: int, *, n: int, k: int, dtype: torch.dtype, device: torch.device, statistic: Statistic
) -> float:
    """FLOP/s of [m, k] x [k, n] into a kept buffer."""
    left = torch.randn(m, k, device=device).to(dtype)
    right = torch.randn(n, k, device=device).to(dtype)
    out = torch.empty(m, n, device=device, dtype=dtype)
    seconds = call_seconds(
        # The second factor is stored as a linear layer stores its weight.
        lambda: torch.mm(left, right.t(), out=out),
        device=device,
        budget_seconds=_BUDGET_SECONDS,
        max_repetitions=_MAX_REPETITIONS,
        statistic=statistic,
    )
    return 2.0 * m * n * k / seconds


def operation_seconds(device: torch.device) -> float:
    """Seconds that one framework operation costs on tensors too small to matter, forward and backward averaged.

    A norm, a product and an activation with their gradients count as nine: the backward pass issues about two
    operations for each forward one.
    """
    rows, width = 4, 16
    inputs = torch.randn(rows, width, device=device, requires_grad=True)
    weight = torch.randn(width, width, device=device, requires_grad=True)

    def chain() -> None:
        normed = torch.nn.functional.layer_norm(inputs, (width,))
        torch.autograd.backward(torch.nn.functional.gelu(normed @ weight).sum())

    seconds = call_seconds(chain, device=device, budget_seconds=0.1, max_repetitions=500, statistic="best")
    return seconds / 9.0
