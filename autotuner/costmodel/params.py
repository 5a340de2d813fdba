"""How many parameters a model has, where they sit and which of them tensor parallelism splits.

Decides counts only; bytes are `memory.py`'s.  Conventions are GPT-2's and Llama's own: a LayerNorm always has a bias,
an RMSNorm none, the output head has no bias, and `biases` means one on every linear of attention and MLP.
Checked by hand in the tests: GPT-2 124M = 124,439,808, Llama-2 7B = 6,738,415,616.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotuner.domain.model import ModelSpec

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerParameters:
    """Parameters of one transformer layer by how they are spread: over tp, over tp and ep, or on every rank.

    `dense_sharded` and `expert_sharded` are divided by tp (experts by ep too), `kv_sharded` by at most the number of
    key-value heads (beyond that they are copied); `replicated` (norms, biases of row-parallel linears, the router) is
    held whole by each tensor-parallel rank.
    """

    dense_sharded: int
    kv_sharded: int
    expert_sharded: int
    replicated: int

    @property
    def total(self) -> int:
        """Parameters of one layer, each counted once."""
        return self.dense_sharded + self.kv_sharded + self.expert_sharded + self.replicated


def attention_matmul_parameters(model: ModelSpec) -> int:
    """Weights of the four attention products of one layer: h(a + 2k)e + aeh."""
    projected = (model.num_heads + 2 * model.num_kv_heads) * model.head_dim
    return model.hidden_size * (projected + model.num_heads * model.head_dim)


def mlp_matmul_parameters(model: ModelSpec, *, ffn_hidden_size: int) -> int:
    """Weights of one MLP (or of one expert): 2hf, or 3hf when it is gated."""
    return (3 if model.gated_ffn else 2) * model.hidden_size * ffn_hidden_size


def active_matmul_parameters_per_layer(model: ModelSpec) -> int:
    """Weights that one token is multiplied with in one layer: those of the chosen experts only, if it has experts."""
    attention = attention_matmul_parameters(model)
    if model.moe is None:
        return attention + mlp_matmul_parameters(model, ffn_hidden_size=model.ffn_hidden_size)
    expert = mlp_matmul_parameters(model, ffn_hidden_size=model.moe.expert_ffn_hidden_size)
    router = model.hidden_size * model.moe.num_experts
    return attention + router + model.moe.experts_per_token * expert


def layer_parameters(model: ModelSpec) -> LayerParameters:
    """One layer's parameters by the way they are spread over ranks."""
    h = model.hidden_size
    key_value = 2 * model.num_kv_heads * model.head_dim * (h + (1 if model.biases else 0))
    dense = model.num_heads * model.head_dim * (2 * h + (1 if model.biases else 0))
    # The bias of a row-parallel linear is added after the sum over ranks, so every rank holds all of it.
    replicated = 2 * norm_parameters(model) + (h if model.biases else 0)
    if model.moe is None:
        sharded, row_bias = _mlp_parameters(model, ffn_hidden_size=model.ffn_hidden_size)
        return LayerParameters(
            dense_sharded=dense + sharded,
            kv_sharded=key_value,
            expert_sharded=0,
            replicated=replicated + row_bias,
        )
    sharded, row_bias = _mlp_parameters(model, ffn_hidden_size=model.moe.expert_ffn_hidden_size)
    return LayerParameters(
        dense_sharded=dense,
        kv_sharded=key_value,
        expert_sharded=model.moe.num_experts * (sharded + row_bias),
        replicated=replicated + h * model.moe.num_experts,
    )


def _mlp_parameters(model: ModelSpec, *, ffn_hidden_size: int) -> tuple[int, int]:
    columns = (2 if model.gated_ffn else 1) * ffn_hidden_size
    sharded = mlp_matmul_parameters(model, ffn_hidden_size=ffn_hidden_size) + (columns if model.biases else 0)
    return sharded, model.hidden_size if model.biases else 0


def norm_parameters(model: ModelSpec) -> int:
    """One normalisation: weight and bias (LayerNorm) or weight only (RMSNorm)."""
    return (2 if model.norm == "layer" else 1) * model.hidden_size


def embedding_parameters(model: ModelSpec) -> int:
    """The token embedding, V x h."""
    return model.vocab_size * model.hidden_size


def position_parameters(model: ModelSpec) -> int:
    """Learned positions, if the model has them."""
    return model.max_seq_len * model.hidden_size if model.position == "learned" else 0


def head_parameters(model: ModelSpec) -> int:
    """The output projection when it has weights of its own."""
    return 0 if model.tied_embeddings else embedding_parameters(model)


def count_parameters(model: ModelSpec) -> int:
    """All parameters of the model, each counted once; exact."""
    return (
        model.num_layers * layer_parameters(model).total
        + embedding_parameters(model)
        + position_parameters(model)
        + norm_parameters(model)
        + head_parameters(model)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RankParameters:
    """Parameters that one rank of a stage holds, by the group over which their gradients are averaged.

    `dense` is averaged over dp x cp, `expert` over dp x cp / ep.  Arrays of one shape (or scalars).
    """

    dense: Floats
    expert: Floats

    @property
    def total(self) -> Floats:
        """All parameters on the rank."""
        total: Floats = self.dense + self.expert
        return total


def rank_parameters(model: ModelSpec, *, layers: Any, is_first: Any, is_last: Any, tp: Any, ep: Any) -> RankParameters:
    """What one rank holds of a stage with `layers` layers; all arguments broadcast (counts, flags, degrees).

    The vocabulary is padded up to a multiple of tp, as Megatron-LM and the bundled trainer do.  With tied embeddings
    the last stage of a real pipeline holds its own copy; a stage that is first and last holds one.
    """
    layers, tp = np.asarray(layers, dtype=np.float64), np.asarray(tp, dtype=np.float64)
    first, last = np.asarray(is_first, dtype=bool), np.asarray(is_last, dtype=bool)
    layer = layer_parameters(model)
    table = np.ceil(model.vocab_size / tp) * model.hidden_size
    holds_head = last & ~first if model.tied_embeddings else last
    kv_parts = np.minimum(tp, model.num_kv_heads)
    dense = layers * (layer.dense_sharded / tp + layer.kv_sharded / kv_parts + layer.replicated)
    dense = dense + first * (table + position_parameters(model)) + holds_head * table + last * norm_parameters(model)
    return RankParameters(dense=dense, expert=layers * layer.expert_sharded / (tp * np.asarray(ep, dtype=np.float64)))
