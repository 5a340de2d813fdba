"""A plain single-process GPT on whole weights, written from the formulas: no sharding, no fused backward, no shortcuts.

What the trainer computes on any layout is compared with this.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from trials.contract import ModelShape, Training

Weights = dict[str, Tensor]


def reference_logits(weights: Weights, tokens: Tensor, *, shape: ModelShape) -> Tensor:
    """[b, s] -> [b, s, V]."""
    hidden = weights["embedding.tokens"][tokens]
    if shape.position == "learned":
        hidden = hidden + weights["embedding.positions"][: tokens.shape[1]]
    for index in range(shape.num_layers):
        prefix = f"layers.{index}"
        normed = _norm(weights, f"{prefix}.attention_norm", hidden)
        hidden = hidden + _attention(weights, f"{prefix}.attention", normed, shape)
        normed = _norm(weights, f"{prefix}.mlp_norm", hidden)
        hidden = hidden + _mlp(weights, f"{prefix}.mlp", normed, shape)
    hidden = _norm(weights, "final_norm", hidden)
    return hidden @ weights.get("head.weight", weights["embedding.tokens"]).t()


def reference_loss(weights: Weights, sequences: Tensor, *, shape: ModelShape) -> Tensor:
    """Mean cross entropy of [B, s + 1]."""
    logits = reference_logits(weights, sequences[:, :-1], shape=shape)
    return functional.cross_entropy(logits.flatten(0, 1), sequences[:, 1:].flatten())


def reference_training(
    weights: Weights, batches: list[Tensor], *, shape: ModelShape, training: Training
) -> tuple[list[float], list[float], Weights, Weights]:
    """Train with torch's own AdamW and clipping.

    Returns losses, gradient norms before clipping, the first batch's gradients and the weights after the last.
    """
    leaves = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
    matrices = [leaf for leaf in leaves.values() if leaf.dim() >= 2]
    vectors = [leaf for leaf in leaves.values() if leaf.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": training.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(
        groups, lr=training.learning_rate, betas=(training.beta1, training.beta2), eps=training.epsilon
    )
    losses: list[float] = []
    norms: list[float] = []
    first: Weights = {}
    for sequences in batches:
        optimizer.zero_grad()
        loss = reference_loss(leaves, sequences, shape=shape)
        loss.backward()
        first = first or {name: leaf.grad.clone() for name, leaf in leaves.items()}
        norm = torch.linalg.vector_norm(torch.cat([leaf.grad.flatten() for leaf in leaves.values()]))
        if training.clip_norm:
            torch.nn.utils.clip_grad_norm_(leaves.values(), training.clip_norm)
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm.item())
    return losses, norms, first, {name: leaf.detach() for name, leaf in leaves.items()}


def _norm(weights: Weights, prefix: str, hidden: Tensor) -> Tensor:
    weight, bias = weights[f"{prefix}.weight"], weights.get(f"{prefix}.bias")
    if bias is None:
        return hidden / (hidden.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight
    centred = hidden - hidden.mean(-1, keepdim=True)
    return centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight + bias


def _linear(weights: Weights, prefix: str, inputs: Tensor) -> Tensor:
    outputs = inputs @ weights[f"{prefix}.weight"].t()
    return outputs + weights[f"{prefix}.bias"] if f"{prefix}.bias" in weights else outputs


def _attention(weights: Weights, prefix: str, hidden: Tensor, shape: ModelShape) -> Tensor:
    a, k, e = shape.num_heads, shape.num_kv_heads, shape.head_dim
    projected = _linear(weights, f"{prefix}.project", hidden)
    query, key, value = projected.split([a * e, k * e, k * e], dim=-1)
    query, key, value = (part.unflatten(-1, (-1, e)).transpose(1, 2) for part in (query, key, value))
    if shape.position == "rope":
        query, key = _rotate(query), _rotate(key)
    key, value = key.repeat_interleave(a // k, dim=1), value.repeat_interleave(a // k, dim=1)
    scores = query @ key.transpose(-1, -2) / e**0.5
    future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    mixed = scores.masked_fill(future, float("-inf")).softmax(-1) @ value
    return _linear(weights, f"{prefix}.output", mixed.transpose(1, 2).flatten(2))


def _rotate(heads: Tensor) -> Tensor:
    s, e = heads.shape[-2:]
    angles = torch.outer(torch.arange(s).float(), 10_000.0 ** (-torch.arange(0, e, 2).float() / e))
    even, odd = heads[..., 0::2], heads[..., 1::2]
    cos, sin = angles.cos(), angles.sin()
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


def _mlp(weights: Weights, prefix: str, hidden: Tensor, shape: ModelShape) -> Tensor:
    inner = _linear(weights, f"{prefix}.up", hidden)
    if shape.gated_ffn:
        gate, up = inner.chunk(2, dim=-1)
        inner = gate * torch.sigmoid(gate) * up
    else:
        inner = inner * 0.5 * (1.0 + torch.erf(inner / 2.0**0.5))
    return _linear(weights, f"{prefix}.down", inner)
