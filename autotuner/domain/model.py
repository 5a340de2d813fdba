"""What is trained: the dimensions of a decoder-only transformer.

GPT-2 style (LayerNorm, GELU, learned positions, biases) and Llama style (RMSNorm, gated MLP, rotary positions, grouped
query attention) are two settings of the same fields.  Nothing here counts parameters: `costmodel/params.py` does.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from autotuner.domain.base import Count, Dimension, Name, Value

Norm = Literal["layer", "rms"]
Position = Literal["learned", "rope", "none"]


class MoeSpec(Value):
    """Mixture of experts: estimated and exported, not run by the bundled trainer."""

    num_experts: Annotated[int, Field(ge=2, le=4096)]
    experts_per_token: Annotated[int, Field(ge=1, le=64)]
    expert_ffn_hidden_size: Dimension

    @model_validator(mode="after")
    def _experts(self) -> Self:
        if self.experts_per_token > self.num_experts:
            raise ValueError(
                f"experts_per_token {self.experts_per_token} is more than num_experts {self.num_experts};"
                f" use at most {self.num_experts}"
            )
        return self


def _default_head_dim(data: dict[str, Any]) -> int:
    # Called with the fields validated so far, and only when all of them are right.
    return max(1, int(data["hidden_size"]) // int(data["num_heads"]))


def _default_ffn(data: dict[str, Any]) -> int:
    """4h, or Megatron's 8h/3 rounded down to a multiple of 64 for a gated MLP (arguments.py: ffn_hidden_size)."""
    hidden_size: int = data["hidden_size"]
    if not data["gated_ffn"]:
        return 4 * hidden_size
    return max(64, (4 * hidden_size * 2 // 3) // 64 * 64)


class ModelSpec(Value):
    """A decoder-only transformer. heads x head_dim need not equal hidden_size (real models differ)."""

    name: Name = "model"
    num_layers: Count
    hidden_size: Dimension
    num_heads: Annotated[int, Field(gt=0, le=4096)]
    num_kv_heads: Annotated[int, Field(gt=0, le=4096)] = Field(default_factory=lambda data: data["num_heads"])
    head_dim: Annotated[int, Field(gt=0, le=8192)] = Field(default_factory=_default_head_dim)
    gated_ffn: bool = False
    ffn_hidden_size: Dimension = Field(default_factory=_default_ffn)
    vocab_size: Annotated[int, Field(gt=1, le=16_777_216)] = 50_257
    max_seq_len: Dimension = 1024
    tied_embeddings: bool = True
    norm: Norm = "layer"
    position: Position = "learned"
    biases: bool = True
    moe: MoeSpec | None = None

    @model_validator(mode="after")
    def _heads(self) -> Self:
        if self.num_heads % self.num_kv_heads:
            legal = [d for d in range(1, self.num_heads + 1) if self.num_heads % d == 0]
            nearest = min(legal, key=lambda d: abs(d - self.num_kv_heads))
            raise ValueError(
                f"num_heads {self.num_heads} is not divisible by num_kv_heads {self.num_kv_heads};"
                f" the nearest legal value is {nearest}"
            )
        if "head_dim" not in self.model_fields_set and self.hidden_size % self.num_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} is not divisible by num_heads {self.num_heads};"
                f" give head_dim, or hidden_size {round(self.hidden_size / self.num_heads) * self.num_heads}"
            )
        if self.position == "rope" and self.head_dim % 2:
            raise ValueError(f"rotary positions need an even head_dim, not {self.head_dim}; use {self.head_dim + 1}")
        return self
