"""How long a device computes on one micro-batch: products, attention core, memory-bound operations, launches.

Symbols: b sequences, s positions, c context parallel, t tensor parallel, T = b s / c tokens, h hidden, a heads,
k key-value heads, e head dim, f MLP width, V vocabulary.  Communication is elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotuner.costmodel.candidates import CandidateArrays
from autotuner.costmodel.rates import Rates
from autotuner.costmodel.software import Software
from autotuner.domain.model import ModelSpec

Floats = NDArray[np.float64]

# Operations that a framework issues per layer when nothing is compiled: norms, four products with biases, attention,
# activation, residual additions and reshapes; the backward pass has about twice as many.
FORWARD_OPERATIONS = 12
BACKWARD_OPERATIONS = 24
# A fused attention kernel multiplies blocks with inner dimensions e and a few dozen, and computes exponentials between
# them: published kernels reach about 0.55 of a large product's rate at e = 128 and 0.35 at e = 32.
_FLASH_EFFICIENCY = 0.7
_FLASH_HALF_DIM = 32.0
# Its backward pass computes the scores again: five products instead of two (Dao et al. 2022, section 3.1).
_FLASH_BACKWARD_RATIO = 2.5
# A causal kernel skips blocks above the diagonal, so short sequences save nothing: (1 + block / s) / 2 is computed.
_CAUSAL_BLOCK = 128
# Memory traffic of the loss, per logit: maximum, difference, exponential, sum and gradient in fp32.
_LOSS_BYTES_PER_LOGIT = 32.0
# Accumulating a gradient in fp32 reads and writes it once per micro-batch.
_ACCUMULATION_BYTES = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSeconds:
    """Seconds of one layer on one micro-batch, each [n]. `attention` is the forward pass of its core."""

    forward: Floats
    backward: Floats
    attention: Floats


def gemm_seconds(m: Any, n: Any, k: Any, *, rates: Rates, matrices: Any = 1.0) -> Floats:
    """[m, k] x [k, n]: 2mnk operations at the saturating rate K / (K + K0), at least the time to move the operands.

    `matrices` counts how many right-hand sides the m rows are spread over (experts).
    """
    operations = 2.0 * m * n * (k + rates.half_k)
    moved = rates.element_bytes * (m * k + matrices * (k * n) + m * n)
    seconds: Floats = np.maximum(operations / rates.flops_per_second, moved / rates.memory_bytes_per_second)
    return seconds


def _linear(tokens: Any, inputs: Any, outputs: Any, *, rates: Rates, matrices: Any = 1.0) -> tuple[Floats, Floats]:
    """Forward, and backward as gradient of the input plus gradient of the weight (inner dimension: tokens)."""
    forward = gemm_seconds(tokens, outputs, inputs, rates=rates, matrices=matrices)
    to_input = gemm_seconds(tokens, inputs, outputs, rates=rates, matrices=matrices)
    to_weight = gemm_seconds(inputs, outputs * matrices, tokens / matrices, rates=rates)
    return forward, to_input + to_weight


def layer_seconds(
    model: ModelSpec, candidates: CandidateArrays, *, seq_len: int, rates: Rates, software: Software
) -> LayerSeconds:
    """One layer of `model` on one micro-batch for each layout."""
    tokens = candidates.micro_batch_size * (seq_len / candidates.cp)
    products_forward, products_backward = _products(model, candidates, tokens=tokens, rates=rates)
    attention_forward, attention_backward = _attention(
        model, candidates, seq_len=seq_len, tokens=tokens, rates=rates, software=software
    )
    streams_forward, streams_backward = _streams(model, candidates, tokens=tokens, rates=rates)
    forward = products_forward + attention_forward + streams_forward
    backward = products_backward + attention_backward + streams_backward
    return LayerSeconds(
        forward=rates.with_launches(forward, operations=FORWARD_OPERATIONS),
        backward=rates.with_launches(backward, operations=BACKWARD_OPERATIONS),
        attention=attention_forward,
    )


def _products(model: ModelSpec, candidates: CandidateArrays, *, tokens: Floats, rates: Rates) -> tuple[Floats, Floats]:
    h, tp = model.hidden_size, candidates.tp
    heads = model.num_heads / tp
    key_values = model.num_kv_heads / np.minimum(tp, model.num_kv_heads)
    parts = [
        _linear(tokens, float(h), (heads + 2 * key_values) * model.head_dim, rates=rates),
        _linear(tokens, heads * model.head_dim, float(h), rates=rates),
    ]
    columns = 2 if model.gated_ffn else 1
    if model.moe is None:
        width = model.ffn_hidden_size / tp
        parts += [
            _linear(tokens, float(h), columns * width, rates=rates),
            _linear(tokens, width, float(h), rates=rates),
        ]
    else:
        width, experts = model.moe.expert_ffn_hidden_size / tp, model.moe.num_experts / candidates.ep
        routed = tokens * model.moe.experts_per_token
        parts += [
            _linear(tokens, float(h), float(model.moe.num_experts), rates=rates),
            _linear(routed, float(h), columns * width, rates=rates, matrices=experts),
            _linear(routed, width, float(h), rates=rates, matrices=experts),
        ]
    return sum((p[0] for p in parts), np.zeros(1)), sum((p[1] for p in parts), np.zeros(1))


def _attention(
    model: ModelSpec, candidates: CandidateArrays, *, seq_len: int, tokens: Floats, rates: Rates, software: Software
) -> tuple[Floats, Floats]:
    heads, e, s = model.num_heads / candidates.tp, float(model.head_dim), float(seq_len)
    if software.flash_attention:
        efficiency = _FLASH_EFFICIENCY * e / (e + _FLASH_HALF_DIM)
        computed = 0.5 * (1.0 + min(1.0, _CAUSAL_BLOCK / s))
        flops = 4.0 * tokens * heads * e * s * computed
        moved = rates.element_bytes * 4.0 * tokens * heads * e
        forward = np.maximum(flops / (rates.flops_per_second * efficiency), rates.stream_seconds(moved))
        return forward, _FLASH_BACKWARD_RATIO * forward
    # Scores [s, e] x [e, s] and context [s, s] x [s, e] for each head; the masked half is computed too.
    rows = tokens * heads
    scores = 2.0 * rows * s * (e + rates.half_k) / rates.flops_per_second
    context = 2.0 * rows * e * (s + rates.half_k) / rates.flops_per_second
    # Scale, mask, softmax and dropout stream the scores: 9as bytes per token forward, 11as backward, in 16 bit.
    stream = rates.stream_seconds(rows * s * rates.element_bytes / 2)
    return scores + context + 9.0 * stream, 2.0 * (scores + context) + 11.0 * stream


def _streams(model: ModelSpec, candidates: CandidateArrays, *, tokens: Floats, rates: Rates) -> tuple[Floats, Floats]:
    """Norms, residuals, biases and the activation: 22h + (8h + 4f)/t bytes per token forward, 38h + (16h + 6f)/t
    backward, in 16 bit; sequence parallelism divides the h terms too.  A gated MLP streams half as much again."""
    h, tp = model.hidden_size, candidates.tp
    width = model.ffn_hidden_size if model.moe is None else _routed_width(model)
    wide = width * (1.5 if model.gated_ffn else 1.0)
    along = np.where(candidates.sequence_parallel, tp, 1)
    per_byte = tokens * rates.element_bytes / 2
    forward = rates.stream_seconds(per_byte * (22.0 * h / along + (8.0 * h + 4.0 * wide) / tp))
    backward = rates.stream_seconds(per_byte * (38.0 * h / along + (16.0 * h + 6.0 * wide) / tp))
    return forward, backward


def _routed_width(model: ModelSpec) -> int:
    if model.moe is None:
        return model.ffn_hidden_size
    return model.moe.experts_per_token * model.moe.expert_ffn_hidden_size


def embedding_seconds(model: ModelSpec, candidates: CandidateArrays, *, seq_len: int, rates: Rates) -> Floats:
    """Look-up and its gradient on the first stage, one micro-batch: streams only."""
    tokens = candidates.micro_batch_size * (seq_len / candidates.cp)
    forward = 3.0 * rates.element_bytes * tokens * model.hidden_size
    backward = (2.0 * rates.element_bytes + 4.0) * tokens * model.hidden_size
    return rates.with_launches(rates.stream_seconds(forward + backward), operations=8)


def head_seconds(model: ModelSpec, candidates: CandidateArrays, *, seq_len: int, rates: Rates) -> Floats:
    """Final norm, logits, loss and their gradients on the last stage, one micro-batch."""
    tokens = candidates.micro_batch_size * (seq_len / candidates.cp)
    vocabulary = np.ceil(model.vocab_size / candidates.tp)
    forward, backward = _linear(tokens, float(model.hidden_size), vocabulary, rates=rates)
    loss = rates.stream_seconds(_LOSS_BYTES_PER_LOGIT * tokens * vocabulary)
    norm = rates.stream_seconds(10.0 * rates.element_bytes * tokens * model.hidden_size)
    return rates.with_launches(forward + backward + loss + norm, operations=20)


def accumulation_seconds(parameters: Floats, *, rates: Rates) -> Floats:
    """Adding one micro-batch's gradients to those before it; shape of `parameters`."""
    return rates.stream_seconds(_ACCUMULATION_BYTES * parameters)
