"""One transformer block: x + attention(norm(x)), then x + mlp(norm(x)).

Shapes: b sequences, s positions, h hidden size, f MLP width, t ranks.  GPT-2's and Llama's blocks are two settings.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from trials.attention import Attention, RotaryPositions
from trials.context import BuildContext
from trials.linear import ColumnParallelLinear, RowParallelLinear
from trials.parameters import ONES, ZEROS, Initial, Placement, split_columns

NORM_EPSILON = 1e-5
# GPT-2's deviation; what is added to the residual stream is made smaller by the number of additions (2 per layer).
INITIAL = Initial(mean=0.0, deviation=0.02)


def residual_initial(num_layers: int) -> Initial:
    """First values of matrices that write into the residual stream (Radford et al. 2019, section 2.3)."""
    return Initial(mean=0.0, deviation=INITIAL.deviation / (2.0 * num_layers) ** 0.5)


class Norm(nn.Module):
    """LayerNorm or RMSNorm over h; every tensor-parallel rank holds the same weights and gets the same gradient."""

    def __init__(self, context: BuildContext, *, prefix: str) -> None:
        super().__init__()
        size = context.shape.hidden_size
        self.weight = context.declare_replicated(f"{prefix}.weight", size, initial=ONES)
        self.bias = (
            context.declare_replicated(f"{prefix}.bias", size, initial=ZEROS) if context.shape.norm == "layer" else None
        )

    def forward(self, hidden: Tensor) -> Tensor:
        """[..., h] -> [..., h]."""
        size = hidden.shape[-1:]
        if self.bias is None:
            return functional.rms_norm(hidden, size, self.weight, NORM_EPSILON)
        return functional.layer_norm(hidden, size, self.weight, self.bias, NORM_EPSILON)


class Mlp(nn.Module):
    """[b, s, h] -> [b, s, h]: GELU (erf), or SwiGLU with gate and up projection in one matrix product."""

    def __init__(self, context: BuildContext, *, prefix: str) -> None:
        super().__init__()
        shape, tp = context.shape, context.mesh.tp
        self._gated = shape.gated_ffn
        self.up = ColumnParallelLinear(
            context.declare(_up_placement(f"{prefix}.up.weight", context, shape.hidden_size), INITIAL),
            context.declare(_up_placement(f"{prefix}.up.bias", context), ZEROS) if shape.biases else None,
            group=tp,
        )
        placement = split_columns(
            f"{prefix}.down.weight",
            rows=shape.hidden_size,
            columns=shape.ffn_hidden_size,
            parts=tp.size,
            index=tp.rank,
        )
        self.down = RowParallelLinear(
            context.declare(placement, residual_initial(shape.num_layers)),
            context.declare_replicated(f"{prefix}.down.bias", shape.hidden_size, initial=ZEROS)
            if shape.biases
            else None,
            group=tp,
        )

    def forward(self, hidden: Tensor) -> Tensor:
        """[b, s, h] -> [b, s, h]."""
        inner = self.up(hidden)
        if self._gated:
            gate, up = inner.chunk(2, dim=-1)
            inner = functional.silu(gate) * up
        else:
            inner = functional.gelu(inner)
        result: Tensor = self.down(inner)
        return result


def _up_placement(name: str, context: BuildContext, *row_shape: int) -> Placement:
    """[f, ...], or gate and up [2f, ...], each of them cut by rows."""
    shape, tp = context.shape, context.mesh.tp
    rows = shape.ffn_hidden_size // tp.size
    starts = [tp.rank * rows + part * shape.ffn_hidden_size for part in range(2 if shape.gated_ffn else 1)]
    return Placement(
        name=name,
        shape=(len(starts) * shape.ffn_hidden_size, *row_shape),
        dim=0,
        ranges=tuple((start, start + rows) for start in starts),
        counted_rows=len(starts) * rows,
        copied_from=None,
    )


class Block(nn.Module):
    """Layer `index` of the model."""

    def __init__(self, context: BuildContext, *, index: int, rotary: RotaryPositions | None) -> None:
        super().__init__()
        prefix = f"layers.{index}"
        self.attention_norm = Norm(context, prefix=f"{prefix}.attention_norm")
        self.attention = Attention(
            context,
            prefix=f"{prefix}.attention",
            initial=INITIAL,
            output_initial=residual_initial(context.shape.num_layers),
        )
        self.mlp_norm = Norm(context, prefix=f"{prefix}.mlp_norm")
        self.mlp = Mlp(context, prefix=f"{prefix}.mlp")
        self.rotary = rotary

    def forward(self, hidden: Tensor) -> Tensor:
        """[b, s, h] -> [b, s, h]."""
        hidden = hidden + self.attention(self.attention_norm(hidden), self.rotary)
        result: Tensor = hidden + self.mlp(self.mlp_norm(hidden))
        return result
