"""Why a configuration is no candidate: a value with the rule, the numbers and a way out."""

from __future__ import annotations

from typing import Literal

from autotuner.domain.base import Value

Rule = Literal[
    "world_size",
    "heads_divisible_by_tp",
    "kv_heads_and_tp",
    "ffn_divisible_by_tp",
    "vocab_divisible_by_tp",
    "tp_within_node",
    "stages_at_most_layers",
    "layers_divisible_by_virtual_stages",
    "microbatches_for_interleaving",
    "virtual_stages_need_pipeline",
    "batch_divisible",
    "seq_divisible_by_tp",
    "seq_divisible_by_cp",
    "sequence_parallel_needs_tp",
    "zero_needs_dp",
    "experts_divisible_by_ep",
    "not_supported_by_framework",
    "memory",
    "recompute_not_needed",
    "excluded",
]


class Rejection(Value):
    """One layout (or the request as a whole) refused by one named rule.

    `values` are the numbers the rule compared; `fix` names the nearest legal value.
    """

    rule: Rule
    message: str
    values: dict[str, int | float | str]
    fix: str
    config_key: str = ""
