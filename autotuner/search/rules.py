"""The rules of sizes that a layout must satisfy to be run at all, each with its numbers and a way out.

Each rule states its condition once, over columns (see `columns.py`), and explains one offending layout.  Which rules
hold in which order, and what a framework supports, is decided in `feasibility.py`.  Sources are the checks of
Megatron-LM (training/arguments.py and core/transformer/transformer_config.py) and, for the interleaved schedule,
Narayanan et al. 2021, section 2.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from autotuner.domain.base import DERIVE
from autotuner.domain.capabilities import Capabilities
from autotuner.domain.job import TuningJob
from autotuner.domain.parallel import ParallelConfig
from autotuner.domain.rejection import Rule
from autotuner.search.axes import divisors
from autotuner.search.columns import BoolArray, Columns, flags


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What the rules compare a layout with."""

    job: TuningJob
    capabilities: Capabilities


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """`message` says what is wrong with which numbers, `fix` what the nearest legal value is."""

    message: str
    values: dict[str, int | float | str]
    fix: str


@dataclass(frozen=True, kw_only=True)
class NamedRule:
    """`violated` gives one flag for each row; `explain` may be asked only about a layout that violates the rule."""

    name: Rule
    violated: Callable[[Columns, Setting], BoolArray]
    explain: Callable[[ParallelConfig, Setting], Explanation]


def nearest(values: Iterable[int], *, to: int) -> int:
    """The value closest to `to`, the smaller one of two equally close. 1 if there is none."""
    return min(values, key=lambda value: (abs(value - to), value), default=1)


def _nearest_tp(config: ParallelConfig, setting: Setting) -> int:
    """The nearest tp that the attention heads and the devices of this cluster allow."""
    model, world_size = setting.job.model, setting.job.cluster.world_size
    replicated = setting.capabilities.kv_heads_replicated
    legal = [
        tp
        for tp in divisors(model.num_heads)
        if world_size % tp == 0
        and (model.num_kv_heads % tp == 0 or (replicated and tp % model.num_kv_heads == 0))
        and model.ffn_hidden_size % tp == 0
    ]
    return nearest(legal, to=config.tp)


def violates_world_size(rows: Columns, setting: Setting) -> BoolArray:
    """tp x pp x cp x dp must be the number of devices."""
    return flags(rows.tp * rows.pp * rows.cp * rows.dp != setting.job.cluster.world_size)


def explain_world_size(config: ParallelConfig, setting: Setting) -> Explanation:
    """Offers the dp that completes the layout, else the nearest product of tp, pp and cp."""
    world_size = setting.job.cluster.world_size
    model_parallel = config.tp * config.pp * config.cp
    if world_size % model_parallel == 0:
        fix = f"use dp {world_size // model_parallel}"
    else:
        fix = f"choose tp x pp x cp as a divisor of {world_size}; the nearest to {model_parallel} is"
        fix += f" {nearest(divisors(world_size), to=model_parallel)}"
    return Explanation(
        message=f"tp {config.tp} x pp {config.pp} x cp {config.cp} x dp {config.dp} is not {world_size} devices",
        values={"tp": config.tp, "pp": config.pp, "cp": config.cp, "dp": config.dp, "world_size": world_size},
        fix=fix,
    )


def violates_tp_within_node(rows: Columns, setting: Setting) -> BoolArray:
    """tp beyond one node only where the user wrote it: in the list of tp values or in the baseline."""
    space, baseline = setting.job.space, setting.job.baseline
    asked_for = [] if space.tp == DERIVE else list(space.tp)
    if baseline is not None:
        asked_for.append(baseline.tp)
    return flags((rows.tp > setting.job.cluster.devices_per_node) & ~np.isin(rows.tp, asked_for))


def explain_tp_within_node(config: ParallelConfig, setting: Setting) -> Explanation:
    """Offers the largest tp within a node, or to list the value."""
    devices = setting.job.cluster.devices_per_node
    largest = max(d for d in divisors(setting.job.model.num_heads) if d <= devices)
    return Explanation(
        message=f"tp {config.tp} spans more than the {devices} devices of one node",
        values={"tp": config.tp, "devices_per_node": devices},
        fix=f"use tp {largest}, or list {config.tp} in space.tp to allow it",
    )


def violates_heads(rows: Columns, setting: Setting) -> BoolArray:
    """Each tp rank holds whole attention heads."""
    return flags(setting.job.model.num_heads % rows.tp != 0)


def explain_heads(config: ParallelConfig, setting: Setting) -> Explanation:
    """Offers the nearest legal tp."""
    heads = setting.job.model.num_heads
    return Explanation(
        message=f"{heads} attention heads cannot be split evenly over tp {config.tp}",
        values={"num_heads": heads, "tp": config.tp},
        fix=f"use tp {_nearest_tp(config, setting)}",
    )


def violates_kv_heads(rows: Columns, setting: Setting) -> BoolArray:
    """Key/value heads are split evenly, or each is copied to several ranks where the framework can do that."""
    kv_heads = setting.job.model.num_kv_heads
    split = kv_heads % rows.tp == 0
    return flags(~(split | (rows.tp % kv_heads == 0)) if setting.capabilities.kv_heads_replicated else ~split)


def explain_kv_heads(config: ParallelConfig, setting: Setting) -> Explanation:
    """Offers the nearest legal tp."""
    kv_heads = setting.job.model.num_kv_heads
    cannot = "neither split nor copied" if setting.capabilities.kv_heads_replicated else "not split"
    return Explanation(
        message=f"{kv_heads} key/value heads can be {cannot} evenly over tp {config.tp}",
        values={"num_kv_heads": kv_heads, "tp": config.tp},
        fix=f"use tp {_nearest_tp(config, setting)}",
    )


def _ffn_widths(setting: Setting) -> list[int]:
    model = setting.job.model
    expert = [] if model.moe is None else [model.moe.expert_ffn_hidden_size]
    return [model.ffn_hidden_size, *expert]


def violates_ffn(rows: Columns, setting: Setting) -> BoolArray:
    """Each tp rank holds an equal share of the feed-forward width (and of an expert's)."""
    return flags(np.logical_or.reduce([width % rows.tp != 0 for width in _ffn_widths(setting)]))


def explain_ffn(config: ParallelConfig, setting: Setting) -> Explanation:
    """Offers the nearest legal tp and the nearest width."""
    width = next(w for w in _ffn_widths(setting) if w % config.tp)
    return Explanation(
        message=f"a feed-forward width of {width} is not divisible by tp {config.tp}",
        values={"ffn_hidden_size": width, "tp": config.tp},
        fix=f"use tp {_nearest_tp(config, setting)}, or a width of {_nearest_multiple(width, of=config.tp)}",
    )


def violates_vocab(rows: Columns, setting: Setting) -> BoolArray:
    """The vocabulary is split evenly, unless the framework pads it."""
    if setting.capabilities.pads_vocabulary:
        return np.zeros(len(rows), dtype=np.bool_)
    return flags(setting.job.model.vocab_size % rows.tp != 0)


def explain_vocab(config: ParallelConfig, setting: Setting) -> Explanation:
    """Offers the padded vocabulary."""
    vocab = setting.job.model.vocab_size
    padded = -(-vocab // config.tp) * config.tp
    return Explanation(
        message=f"a vocabulary of {vocab} is not divisible by tp {config.tp}, and the framework does not pad it",
        values={"vocab_size": vocab, "tp": config.tp},
        fix=f"pad vocab_size to {padded}",
    )


def violates_seq_by_cp(rows: Columns, setting: Setting) -> BoolArray:
    """Context parallelism cuts a sequence into 2 x cp pieces, so that causal attention is balanced."""
    return flags((rows.cp > 1) & (setting.job.workload.seq_len % (2 * rows.cp) != 0))


def explain_seq_by_cp(config: ParallelConfig, setting: Setting) -> Explanation:
    """Offers the nearest legal cp."""
    seq_len = setting.job.workload.seq_len
    legal = [1, *(d // 2 for d in divisors(seq_len) if d % 2 == 0)]
    return Explanation(
        message=f"a sequence of {seq_len} is not divisible by 2 x cp {config.cp}",
        values={"seq_len": seq_len, "cp": config.cp},
        fix=f"use cp {nearest(legal, to=config.cp)}, or seq_len {_nearest_multiple(seq_len, of=2 * config.cp)}",
    )


def violates_sequence_parallel(rows: Columns, _setting: Setting) -> BoolArray:
    """Sequence parallelism works on the tensor-parallel group."""
    return flags((rows.sequence_parallel == 1) & (rows.tp == 1))


def explain_sequence_parallel(config: ParallelConfig, _setting: Setting) -> Explanation:
    """Offers to switch it off."""
    return Explanation(
        message=f"sequence_parallel has nothing to split at tp {config.tp}",
        values={"tp": config.tp},
        fix="use sequence_parallel false, or tp of at least 2",
    )


def violates_seq_by_tp(rows: Columns, setting: Setting) -> BoolArray:
    """Sequence parallelism splits each context-parallel part of the sequence over tp."""
    part = np.maximum(setting.job.workload.seq_len // rows.cp, 1)
    return flags((rows.sequence_parallel == 1) & (part % rows.tp != 0))


def explain_seq_by_tp(config: ParallelConfig, setting: Setting) -> Explanation:
    """Offers the nearest legal sequence length."""
    seq_len = setting.job.workload.seq_len
    legal = _nearest_multiple(seq_len, of=config.tp * config.cp)
    return Explanation(
        message=f"sequence_parallel cannot split a sequence of {seq_len} over cp {config.cp} and tp {config.tp}",
        values={"seq_len": seq_len, "tp": config.tp, "cp": config.cp},
        fix=f"use sequence_parallel false, or seq_len {legal}",
    )


def _nearest_multiple(number: int, *, of: int) -> int:
    """`_nearest_multiple(10, of=4)` is 8: the smaller one of two equally close, and never 0."""
    below = number // of * of
    above = below + of
    return below if below > 0 and number - below <= above - number else above
