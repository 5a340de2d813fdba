"""Causal self-attention with fused projections, grouped key and value heads and, if asked for, rotary positions.

Shapes: b sequences, s positions, h hidden size, a query heads, k key and value heads, e head size, t ranks; `_local`
sizes are a rank's own.  Heads are cut over the tensor-parallel group.  Where t > k, each key and value head is held by
t / k neighbours: each has the gradient through its own query heads only; `gradients.py` sums over the copies.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from trials.context import BuildContext
from trials.linear import ColumnParallelLinear, RowParallelLinear
from trials.parameters import ZEROS, Initial, Placement, split_columns
from trials.recompute import run_attention

ROPE_BASE = 10_000.0


def projection_placement(name: str, context: BuildContext, *row_shape: int) -> Placement:
    """The fused projection [(a + 2k) e, ...] cut by heads: a rank's rows are its queries, then keys, then values."""
    shape, tp = context.shape, context.mesh.tp
    query_rows = shape.num_heads // tp.size * shape.head_dim
    copies = context.mesh.kv.size
    kv_rows = max(1, shape.num_kv_heads // tp.size) * shape.head_dim
    kv_index = tp.rank // copies
    keys, values = shape.num_heads * shape.head_dim, (shape.num_heads + shape.num_kv_heads) * shape.head_dim
    first_copy = context.mesh.kv.rank == 0
    return Placement(
        name=name,
        shape=((shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim, *row_shape),
        dim=0,
        ranges=(
            (tp.rank * query_rows, (tp.rank + 1) * query_rows),
            (keys + kv_index * kv_rows, keys + (kv_index + 1) * kv_rows),
            (values + kv_index * kv_rows, values + (kv_index + 1) * kv_rows),
        ),
        counted_rows=query_rows + 2 * kv_rows if first_copy else query_rows,
        copied_from=query_rows if copies > 1 else None,
    )


class RotaryPositions(nn.Module):
    """Turns neighbouring pairs of a head's values by angles that grow with the position (Su et al. 2021, eq. 34)."""

    turns: Tensor

    def __init__(self, *, head_dim: int, max_seq_len: int, device: torch.device) -> None:
        super().__init__()
        frequencies = ROPE_BASE ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
        angles = torch.outer(torch.arange(max_seq_len, dtype=torch.float32), frequencies)
        turns = torch.polar(torch.ones_like(angles), angles).unsqueeze(1)
        self.register_buffer("turns", turns.to(device), persistent=False)

    def forward(self, heads: Tensor) -> Tensor:
        """[b, s, heads, e] -> the same; computed in fp32. A complex product is one pass where sines take four."""
        pairs = torch.view_as_complex(heads.float().view(*heads.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * self.turns[: heads.shape[1]]).flatten(-2).to(heads.dtype)


def attention_core(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """[b, s, a_local, e] and twice [b, s, k_local, e] -> [b, s, a_local, e], causal."""
    heads = functional.scaled_dot_product_attention(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        is_causal=True,
        enable_gqa=query.shape[2] != key.shape[2],
    )
    return heads.transpose(1, 2)


class Attention(nn.Module):
    """[b, s, h] -> [b, s, h] on every rank of the group."""

    def __init__(self, context: BuildContext, *, prefix: str, output_initial: Initial, initial: Initial) -> None:
        super().__init__()
        shape, tp = context.shape, context.mesh.tp
        width = shape.num_heads * shape.head_dim
        self._recompute = context.recompute
        self._head_dim = shape.head_dim
        self._heads = [shape.num_heads // tp.size, *[max(1, shape.num_kv_heads // tp.size)] * 2]
        self.project = ColumnParallelLinear(
            context.declare(projection_placement(f"{prefix}.project.weight", context, shape.hidden_size), initial),
            context.declare(projection_placement(f"{prefix}.project.bias", context), ZEROS) if shape.biases else None,
            group=tp,
        )
        self.output = RowParallelLinear(
            context.declare(
                split_columns(
                    f"{prefix}.output.weight", rows=shape.hidden_size, columns=width, parts=tp.size, index=tp.rank
                ),
                output_initial,
            ),
            context.declare_replicated(f"{prefix}.output.bias", shape.hidden_size, initial=ZEROS)
            if shape.biases
            else None,
            group=tp,
        )

    def forward(self, hidden: Tensor, rotary: RotaryPositions | None) -> Tensor:
        """[b, s, h] -> [b, s, h]."""
        heads = self.project(hidden).view(*hidden.shape[:2], -1, self._head_dim)
        query, key, value = heads.split(self._heads, dim=2)
        if rotary is not None:
            query, key = rotary(query), rotary(key)
        mixed = run_attention(attention_core, query, key, value, mode=self._recompute)
        result: Tensor = self.output(mixed.flatten(2))
        return result
