"""What differs between training programs rather than between machines: kept tensors, state sizes and overlap.

A generation of software moved published step times more than most hardware constants did, so it is a value of its own.
Decides no formula; every field is a fact about a program that a reader can check in its source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotuner.domain.workload import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBytes:
    """Bytes per parameter. ZeRO-1 shards `optimizer` (fp32 masters where they belong to it), ZeRO-2 also `gradients`,
    ZeRO-3 also `weights` (Rajbhandari et al. 2020, section 5)."""

    weights: float
    gradients: float
    optimizer: float

    @property
    def total(self) -> float:
        """Bytes per parameter with nothing sharded."""
        return self.weights + self.gradients + self.optimizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """One training program.

    `flash_attention`   attention scores are never stored (no s^2 term), and their products stay in fast memory
    `dropout`           dropout masks are drawn and kept
    `tp_overlap`        share of the backward pass' tensor-parallel communication hidden behind weight gradients
    `p2p_overlap`       share of the messages between stages hidden behind compute
    `scatter_gather_p2p` a stage's output crosses nodes once per tensor-parallel group (SC 2021, section 4.1)
    `gated_mlp_tensors` tensors of the MLP's width that a gated MLP keeps: gate, up, product, unfused also silu(gate)
    `logits_block_bytes` logits exist for one block at a time on (cpu, accelerator); None: for the whole micro-batch
    `logits_bytes_per_element` bytes per logit alive at once, by element size: {2: 16-bit, 4: fp32}
    """

    name: str
    states: Mapping[Precision, StateBytes]
    flash_attention: bool
    dropout: bool
    tp_overlap: float
    p2p_overlap: float
    scatter_gather_p2p: bool
    gated_mlp_tensors: int
    logits_block_bytes: tuple[int, int] | None
    logits_bytes_per_element: Mapping[int, float]


# fp32 weights and gradients always; in 16 bit a working copy of the weights beside them (trials/flat.py).
_BUNDLED_16_BIT = StateBytes(weights=6.0, gradients=4.0, optimizer=8.0)
_FP32 = StateBytes(weights=4.0, gradients=4.0, optimizer=8.0)

BUNDLED = Software(
    name="bundled",
    states={"fp32": _FP32, "bf16": _BUNDLED_16_BIT, "fp16": _BUNDLED_16_BIT, "fp8": _BUNDLED_16_BIT},
    flash_attention=True,
    dropout=False,
    tp_overlap=0.0,
    p2p_overlap=0.0,
    scatter_gather_p2p=False,
    gated_mlp_tensors=4,
    logits_block_bytes=(8 * 1024 * 1024, 256 * 1024 * 1024),
    logits_bytes_per_element={2: 8.0, 4: 4.0},
)

# Megatron-LM of 2021/22: unfused attention core, dropout, backward all-reduce hidden behind the weight gradient
# (Korthikanti et al. 2022, section 6), fp16 with fp16 gradients (20 bytes) or bf16 with fp32 gradients (18).
MEGATRON_2022 = Software(
    name="megatron-lm-2022",
    states={
        "fp32": _FP32,
        "bf16": StateBytes(weights=2.0, gradients=4.0, optimizer=12.0),
        "fp16": StateBytes(weights=2.0, gradients=2.0, optimizer=16.0),
        "fp8": StateBytes(weights=2.0, gradients=4.0, optimizer=12.0),
    },
    flash_attention=False,
    dropout=True,
    tp_overlap=1.0,
    p2p_overlap=0.0,
    scatter_gather_p2p=True,
    gated_mlp_tensors=3,
    logits_block_bytes=None,
    logits_bytes_per_element={2: 10.0, 4: 12.0},
)

# Megatron-core of 2024 on: flash attention, no dropout, both directions of tensor-parallel traffic partly hidden.
MEGATRON_2024 = Software(
    name="megatron-core-2024",
    states={**MEGATRON_2022.states, "fp16": StateBytes(weights=2.0, gradients=4.0, optimizer=12.0)},
    flash_attention=True,
    dropout=False,
    tp_overlap=1.0,
    p2p_overlap=0.5,
    scatter_gather_p2p=True,
    gated_mlp_tensors=3,
    logits_block_bytes=None,
    logits_bytes_per_element={2: 10.0, 4: 12.0},
)
