"""Whether a layout can be run at all: the ordered table of rules, and what the framework supports.

Memory is not decided here: it is an estimate, see `ranking.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from autotuner.domain.capabilities import Capabilities
from autotuner.domain.job import TuningJob
from autotuner.domain.parallel import ParallelConfig
from autotuner.domain.rejection import Rejection
from autotuner.search import batch_rules, rules
from autotuner.search.columns import RECOMPUTES, BoolArray, Columns, columns_of
from autotuner.search.rules import Explanation, NamedRule, Setting


@dataclass(frozen=True, kw_only=True)
class Unsupported:
    """One thing that the framework cannot do; `fix` is what it can."""

    what: str
    value: int | str
    fix: str


def _unsupported_by_job(setting: Setting) -> Unsupported | None:
    """What no layout can change: precision and architecture."""
    model, able = setting.job.model, setting.capabilities
    choices: tuple[tuple[str, str, Sequence[str]], ...] = (
        ("precision", setting.job.workload.precision, able.precisions),
        ("norm", model.norm, able.norms),
        ("position", model.position, able.positions),
    )
    for what, value, allowed in choices:
        if value not in allowed:
            return Unsupported(what=what, value=value, fix=f"use one of {', '.join(allowed)}")
    if model.num_kv_heads != model.num_heads and not able.grouped_query_attention:
        return Unsupported(what="num_kv_heads", value=model.num_kv_heads, fix=f"use num_kv_heads {model.num_heads}")
    if model.gated_ffn and not able.gated_ffn:
        return Unsupported(what="gated_ffn", value="true", fix="use gated_ffn false")
    if model.moe is not None and not able.moe:
        return Unsupported(what="moe", value=model.moe.num_experts, fix="use a dense model, or another framework")
    return None


def _violates_support(rows: Columns, setting: Setting) -> BoolArray:
    able = setting.capabilities
    if _unsupported_by_job(setting) is not None:
        return np.ones(len(rows), dtype=np.bool_)
    recomputes = [RECOMPUTES.index(r) for r in able.recompute]
    violated: BoolArray = (
        (rows.cp > able.max_context_parallel)
        | (rows.ep > able.max_expert_parallel)
        | (rows.virtual_stages > able.max_virtual_stages)
        | ((rows.sequence_parallel == 1) & (not able.sequence_parallel))
        | ~np.isin(rows.zero_stage, able.zero_stages)
        | ~np.isin(rows.recompute, recomputes)
    )
    return violated


def _unsupported_by_layout(config: ParallelConfig, setting: Setting) -> Unsupported:
    able = setting.capabilities
    if config.cp > able.max_context_parallel:
        return Unsupported(what="cp", value=config.cp, fix=f"use cp {able.max_context_parallel} at most")
    if config.ep > able.max_expert_parallel:
        return Unsupported(what="ep", value=config.ep, fix=f"use ep {able.max_expert_parallel} at most")
    if config.virtual_stages > able.max_virtual_stages:
        most = able.max_virtual_stages
        return Unsupported(what="virtual_stages", value=config.virtual_stages, fix=f"use virtual_stages {most} at most")
    if config.sequence_parallel and not able.sequence_parallel:
        return Unsupported(what="sequence_parallel", value="true", fix="use sequence_parallel false")
    if config.zero_stage not in able.zero_stages:
        stage = rules.nearest(able.zero_stages, to=config.zero_stage)
        return Unsupported(what="zero_stage", value=config.zero_stage, fix=f"use zero_stage {stage}")
    return Unsupported(what="recompute", value=config.recompute, fix=f"use one of {', '.join(able.recompute)}")


def _explain_support(config: ParallelConfig, setting: Setting) -> Explanation:
    found = _unsupported_by_job(setting) or _unsupported_by_layout(config, setting)
    framework = setting.capabilities.framework
    return Explanation(
        message=f"the framework {framework} does not support {found.what} {found.value}",
        values={"framework": framework, found.what: found.value},
        fix=found.fix,
    )


def _violates_exclusion(rows: Columns, setting: Setting) -> BoolArray:
    excluded = frozenset(setting.job.space.excluded)
    if not excluded:
        return np.zeros(len(rows), dtype=np.bool_)
    return np.array([rows.row(i).key() in excluded for i in range(len(rows))], dtype=np.bool_)


def _explain_exclusion(config: ParallelConfig, _setting: Setting) -> Explanation:
    return Explanation(
        message=f"the layout {config.key()} is excluded by the search space",
        values={"key": config.key()},
        fix=f"remove {config.key()} from space.excluded",
    )


# From what the whole request gets wrong to what a single value does. Order matters: a rule may rely on the ones above
# it (interleaving divides by a micro-batch that divides the batch), and a layout is counted under the first it breaks.
RULES: Final[tuple[NamedRule, ...]] = (
    NamedRule(name="not_supported_by_framework", violated=_violates_support, explain=_explain_support),
    NamedRule(name="world_size", violated=rules.violates_world_size, explain=rules.explain_world_size),
    NamedRule(name="heads_divisible_by_tp", violated=rules.violates_heads, explain=rules.explain_heads),
    NamedRule(name="kv_heads_and_tp", violated=rules.violates_kv_heads, explain=rules.explain_kv_heads),
    NamedRule(name="ffn_divisible_by_tp", violated=rules.violates_ffn, explain=rules.explain_ffn),
    NamedRule(name="vocab_divisible_by_tp", violated=rules.violates_vocab, explain=rules.explain_vocab),
    NamedRule(name="tp_within_node", violated=rules.violates_tp_within_node, explain=rules.explain_tp_within_node),
    NamedRule(
        name="virtual_stages_need_pipeline",
        violated=batch_rules.violates_virtual_needs_pipeline,
        explain=batch_rules.explain_virtual_needs_pipeline,
    ),
    NamedRule(
        name="stages_at_most_layers",
        violated=batch_rules.violates_stages_at_most_layers,
        explain=batch_rules.explain_stages_at_most_layers,
    ),
    NamedRule(
        name="layers_divisible_by_virtual_stages",
        violated=batch_rules.violates_layers_by_virtual_stages,
        explain=batch_rules.explain_layers_by_virtual_stages,
    ),
    NamedRule(name="batch_divisible", violated=batch_rules.violates_batch, explain=batch_rules.explain_batch),
    NamedRule(
        name="microbatches_for_interleaving",
        violated=batch_rules.violates_interleaving,
        explain=batch_rules.explain_interleaving,
    ),
    NamedRule(name="seq_divisible_by_cp", violated=rules.violates_seq_by_cp, explain=rules.explain_seq_by_cp),
    NamedRule(
        name="sequence_parallel_needs_tp",
        violated=rules.violates_sequence_parallel,
        explain=rules.explain_sequence_parallel,
    ),
    NamedRule(name="seq_divisible_by_tp", violated=rules.violates_seq_by_tp, explain=rules.explain_seq_by_tp),
    NamedRule(
        name="zero_needs_dp", violated=batch_rules.violates_zero_needs_dp, explain=batch_rules.explain_zero_needs_dp
    ),
    NamedRule(
        name="experts_divisible_by_ep", violated=batch_rules.violates_experts, explain=batch_rules.explain_experts
    ),
    NamedRule(name="excluded", violated=_violates_exclusion, explain=_explain_exclusion),
)


def check(config: ParallelConfig, *, job: TuningJob, capabilities: Capabilities) -> Rejection | None:
    """The first rule that a layout breaks, or None when it can be run as far as sizes and support go."""
    setting = Setting(job=job, capabilities=capabilities)
    rows = columns_of([config])
    for rule in RULES:
        if rule.violated(rows, setting)[0]:
            return reject(config, rule=rule, setting=setting)
    return None


def reject(config: ParallelConfig, *, rule: NamedRule, setting: Setting) -> Rejection:
    """The rejection of a layout that is known to break `rule`."""
    told = rule.explain(config, setting)
    return Rejection(rule=rule.name, message=told.message, values=told.values, fix=told.fix, config_key=config.key())
