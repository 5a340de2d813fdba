"""The rules of stages, micro-batches, optimizer shards and experts; `rules.py` holds those of tensor sizes."""

from __future__ import annotations

import numpy as np

from autotuner.domain.parallel import ParallelConfig
from autotuner.search.axes import divisors
from autotuner.search.columns import BoolArray, Columns, flags
from autotuner.search.rules import Explanation, Setting, nearest


def violates_virtual_needs_pipeline(rows: Columns, _setting: Setting) -> BoolArray:
    """Virtual stages interleave the chunks of a pipeline, so there must be one."""
    return flags((rows.virtual_stages > 1) & (rows.pp == 1))


def explain_virtual_needs_pipeline(config: ParallelConfig, _setting: Setting) -> Explanation:
    """Offers a plain schedule."""
    return Explanation(
        message=f"virtual_stages {config.virtual_stages} needs a pipeline, and pp is {config.pp}",
        values={"virtual_stages": config.virtual_stages, "pp": config.pp},
        fix="use virtual_stages 1, or pp of at least 2",
    )


def violates_stages_at_most_layers(rows: Columns, setting: Setting) -> BoolArray:
    """Every chunk of every stage holds at least one layer."""
    return flags(rows.pp * rows.virtual_stages > setting.job.model.num_layers)


def explain_stages_at_most_layers(config: ParallelConfig, setting: Setting) -> Explanation:
    """Offers fewer virtual stages where that is enough, else fewer stages."""
    layers, world_size = setting.job.model.num_layers, setting.job.cluster.world_size
    if config.pp <= layers:
        fix = f"use virtual_stages {layers // config.pp}"
    else:
        fix = f"use pp {max(d for d in divisors(world_size) if d <= layers)}"
    return Explanation(
        message=f"pp {config.pp} x virtual_stages {config.virtual_stages} is more than the {layers} layers",
        values={"pp": config.pp, "virtual_stages": config.virtual_stages, "num_layers": layers},
        fix=fix,
    )


def violates_layers_by_virtual_stages(rows: Columns, setting: Setting) -> BoolArray:
    """Without uneven stages every chunk holds the same number of layers."""
    if setting.capabilities.uneven_stages:
        return np.zeros(len(rows), dtype=np.bool_)
    return flags(setting.job.model.num_layers % (rows.pp * rows.virtual_stages) != 0)


def explain_layers_by_virtual_stages(config: ParallelConfig, setting: Setting) -> Explanation:
    """Offers the nearest virtual_stages for this pp, else the nearest pp."""
    layers, world_size = setting.job.model.num_layers, setting.job.cluster.world_size
    if layers % config.pp == 0:
        legal = [v for v in divisors(layers // config.pp) if v <= setting.capabilities.max_virtual_stages]
        fix = f"use virtual_stages {nearest(legal, to=config.virtual_stages)}"
    else:
        legal = [d for d in divisors(world_size) if layers % d == 0]
        fix = f"use pp {nearest(legal, to=config.pp)}"
    return Explanation(
        message=(
            f"{layers} layers cannot be split evenly over pp {config.pp} x virtual_stages {config.virtual_stages},"
            f" and {setting.capabilities.framework} needs equal stages"
        ),
        values={"num_layers": layers, "pp": config.pp, "virtual_stages": config.virtual_stages},
        fix=fix,
    )


def violates_batch(rows: Columns, setting: Setting) -> BoolArray:
    """The global batch is a whole number of micro-batches on every replica (`domain.parallel.is_batch_divisible`)."""
    return flags(setting.job.workload.global_batch_size % (rows.micro_batch_size * rows.dp) != 0)


def explain_batch(config: ParallelConfig, setting: Setting) -> Explanation:
    """Offers the nearest micro-batch where dp divides the batch, and the nearest global batch always."""
    batch, unit = setting.job.workload.global_batch_size, config.micro_batch_size * config.dp
    below = batch // unit * unit
    legal = below if below > 0 and batch - below <= below + unit - batch else below + unit
    fix = f"use global_batch_size {legal}"
    if batch % config.dp == 0:
        micro_batch = nearest(divisors(batch // config.dp), to=config.micro_batch_size)
        fix = f"use micro_batch_size {micro_batch}, or global_batch_size {legal}"
    return Explanation(
        message=f"a global batch of {batch} is not divisible by micro-batch {config.micro_batch_size} x dp {config.dp}",
        values={"global_batch_size": batch, "micro_batch_size": config.micro_batch_size, "dp": config.dp},
        fix=fix,
    )


def violates_interleaving(rows: Columns, setting: Setting) -> BoolArray:
    """The interleaved schedule runs micro-batches in groups of pp, so their number is a multiple of pp."""
    num_microbatches = setting.job.workload.global_batch_size // (rows.micro_batch_size * rows.dp)
    return flags((rows.virtual_stages > 1) & (num_microbatches % rows.pp != 0))


def explain_interleaving(config: ParallelConfig, setting: Setting) -> Explanation:
    """Offers the nearest micro-batch size that gives a multiple of pp."""
    per_replica = setting.job.workload.global_batch_size // config.dp
    num_microbatches = per_replica // config.micro_batch_size
    legal = [m for m in divisors(per_replica) if per_replica // m % config.pp == 0]
    fix = "use virtual_stages 1"
    if legal:
        fix += f", or micro_batch_size {nearest(legal, to=config.micro_batch_size)}"
    return Explanation(
        message=(
            f"{num_microbatches} micro-batches are no multiple of pp {config.pp},"
            f" which virtual_stages {config.virtual_stages} needs"
        ),
        values={"num_microbatches": num_microbatches, "pp": config.pp, "virtual_stages": config.virtual_stages},
        fix=fix,
    )


def violates_zero_needs_dp(rows: Columns, _setting: Setting) -> BoolArray:
    """ZeRO shards over data-parallel (and context-parallel) replicas, so there must be two."""
    return flags((rows.zero_stage > 0) & (rows.dp * rows.cp == 1))


def explain_zero_needs_dp(config: ParallelConfig, _setting: Setting) -> Explanation:
    """Offers to switch it off."""
    return Explanation(
        message=f"zero_stage {config.zero_stage} has nothing to shard over at dp {config.dp}",
        values={"zero_stage": config.zero_stage, "dp": config.dp},
        fix="use zero_stage 0, or dp of at least 2",
    )


def violates_experts(rows: Columns, setting: Setting) -> BoolArray:
    """Experts are dealt evenly to ep ranks, and these are ranks that would otherwise be replicas."""
    moe = setting.job.model.moe
    # Experts split by tp as well (Megatron-LM's default), so ep folds over dp and cp only.
    folds = rows.dp * rows.cp % rows.ep == 0
    return flags((rows.ep > 1) & ~(folds & ((moe.num_experts if moe else 1) % rows.ep == 0)))


def explain_experts(config: ParallelConfig, setting: Setting) -> Explanation:
    """Offers the nearest ep that divides both the experts and the replicas."""
    num_experts = setting.job.model.moe.num_experts if setting.job.model.moe else 1
    replicas = config.dp * config.cp
    legal = [d for d in divisors(num_experts) if replicas % d == 0]
    return Explanation(
        message=f"ep {config.ep} must divide both {num_experts} experts and {replicas} replicas (dp x cp)",
        values={"ep": config.ep, "num_experts": num_experts, "replicas": replicas},
        fix=f"use ep {nearest(legal, to=config.ep)}",
    )
