"""Communication inside a layer: tensor parallel sums, context parallel exchange, expert dispatch.

Decides message sizes and how much of them is hidden behind compute; the time of a message is `collectives.py`'s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotuner.costmodel.candidates import FULL_RECOMPUTE, CandidateArrays
from autotuner.costmodel.collectives import Link
from autotuner.costmodel.compute import LayerSeconds
from autotuner.costmodel.software import Software
from autotuner.costmodel.topology import Topology
from autotuner.domain.model import ModelSpec

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTraffic:
    """Exposed seconds of communication on one micro-batch, each [n]: of a layer (forward and backward, with what
    recomputation repeats), of the embedding on the first stage, of head and loss on the last one."""

    layer: Floats
    embedding: Floats
    head: Floats


def layer_traffic(
    model: ModelSpec,
    candidates: CandidateArrays,
    *,
    seq_len: int,
    element_bytes: int,
    topology: Topology,
    seconds: LayerSeconds,
    software: Software,
    spare: Floats,
) -> LayerTraffic:
    """`seconds` bounds what can be hidden; `spare` [n] is 0 where communication and compute share the same cores."""
    tokens = candidates.micro_batch_size * (seq_len / candidates.cp)
    activation = element_bytes * tokens * model.hidden_size
    sums = _sum_over_tensor_group(candidates, activation=activation, link=topology.tensor)
    context = _context_exchange(model, candidates, tokens=tokens, element_bytes=element_bytes, link=topology.context)
    dispatch = _expert_dispatch(model, candidates, activation=activation, link=topology.expert)
    # Two sums forward and two backward (Shoeybi et al. 2019, figure 4); keys and values travel once forward, and with
    # their gradients backward; tokens travel to their experts and back in each direction.
    forward = 2.0 * sums + context + 2.0 * dispatch
    backward = 2.0 * sums + 2.0 * context + 2.0 * dispatch
    # Only sums can hide behind the weight gradient, which is half of the backward products.
    hidden = software.tp_overlap * spare * np.minimum(2.0 * sums, 0.5 * seconds.backward)
    repeated = np.where(candidates.recompute == FULL_RECOMPUTE, forward, 0.0)
    statistics = topology.tensor.seconds("all_reduce", num_bytes=12.0 * tokens, participants=candidates.tp)
    return LayerTraffic(layer=forward + backward - hidden + repeated, embedding=sums, head=sums + statistics)


def _sum_over_tensor_group(candidates: CandidateArrays, *, activation: Floats, link: Link) -> Floats:
    """One all-reduce, or with sequence parallelism a reduce-scatter and an all-gather of the same bytes."""
    size = candidates.tp
    whole = link.seconds("all_reduce", num_bytes=activation, participants=size)
    if not candidates.sequence_parallel.any():
        return whole
    scatter = link.seconds("reduce_scatter", num_bytes=activation, participants=size)
    gather = link.seconds("all_gather", num_bytes=activation, participants=size)
    return np.where(candidates.sequence_parallel, scatter + gather, whole)


def _context_exchange(
    model: ModelSpec, candidates: CandidateArrays, *, tokens: Floats, element_bytes: int, link: Link
) -> Floats:
    """Every rank sees every other rank's keys and values."""
    key_values = model.num_kv_heads / np.minimum(candidates.tp, model.num_kv_heads)
    whole = element_bytes * tokens * candidates.cp * 2.0 * key_values * model.head_dim
    return link.seconds("all_gather", num_bytes=whole, participants=candidates.cp)


def _expert_dispatch(model: ModelSpec, candidates: CandidateArrays, *, activation: Floats, link: Link) -> Floats:
    if model.moe is None:
        return np.zeros(len(candidates))
    sent = activation * model.moe.experts_per_token
    return link.seconds("all_to_all", num_bytes=sent, participants=candidates.ep)
