"""Averaging gradients over replicas, and gathering what ZeRO has spread: how long, and how much of it hides.

n = dp x cp replicas.  ZeRO-0 all-reduces gradients once a step.  ZeRO-1 reduce-scatters them and all-gathers the new
weights.  ZeRO-2 must reduce after every micro-batch, because no rank keeps a full gradient.  ZeRO-3 also gathers the
weights for each forward and each backward pass (Rajbhandari et al. 2020, section 7).  Reductions can hide only behind
the backward pass that makes them, gathers only behind the forward pass that needs them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotuner.costmodel.candidates import CandidateArrays
from autotuner.costmodel.collectives import Link
from autotuner.costmodel.params import RankParameters
from autotuner.costmodel.software import StateBytes
from autotuner.costmodel.topology import Topology

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """What gradient traffic of the fullest stage could hide behind, each [n] seconds of one micro-batch; `layers` of
    that stage: traffic of the last one has nothing left to hide behind."""

    forward: Floats
    backward: Floats
    layers: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class _Traffic:
    reduce: Floats
    gather: Floats


def exposed_gradient_seconds(
    candidates: CandidateArrays,
    *,
    parameters: RankParameters,
    states: StateBytes,
    weight_bytes: int,
    microbatches: Floats,
    topology: Topology,
    windows: Windows,
    spare: Floats,
) -> Floats:
    """[n] seconds of one step on the stage with the most parameters (`parameters` fields [n])."""
    replicas = candidates.dp * candidates.cp
    expert_replicas = np.maximum(1, replicas // candidates.ep)
    traffic = [
        _traffic(
            candidates,
            elements=elements,
            group=group,
            link=link,
            gradient_bytes=states.gradients,
            weight_bytes=weight_bytes,
        )
        for elements, group, link in (
            (parameters.dense, replicas, topology.gradient),
            (parameters.expert, expert_replicas, topology.expert_gradient),
        )
    ]
    reduce, gather = traffic[0].reduce + traffic[1].reduce, traffic[0].gather + traffic[1].gather
    zero = candidates.zero_stage
    reductions = np.where(zero >= 2, microbatches, 1.0)
    gathers = np.where(zero == 3, 2.0 * microbatches, np.where(zero >= 1, 1.0, 0.0))
    behind = np.where(zero == 3, microbatches * (windows.forward + windows.backward), windows.forward)
    return _exposed(
        reduce * reductions,
        window=spare * windows.backward * reductions,
        overlaps=candidates.overlap_grad_reduce,
        layers=windows.layers,
    ) + _exposed(
        gather * gathers, window=spare * behind, overlaps=candidates.overlap_param_gather, layers=windows.layers
    )


def _traffic(
    candidates: CandidateArrays,
    *,
    elements: Floats,
    group: NDArray[np.int64],
    link: Link,
    gradient_bytes: float,
    weight_bytes: int,
) -> _Traffic:
    """One reduction and one gather of these parameters."""
    exists = elements > 0
    whole = link.seconds("all_reduce", num_bytes=elements * gradient_bytes, participants=group)
    scatter = link.seconds("reduce_scatter", num_bytes=elements * gradient_bytes, participants=group)
    gather = link.seconds("all_gather", num_bytes=elements * weight_bytes, participants=group)
    reduce = np.where(candidates.zero_stage >= 1, scatter, whole)
    return _Traffic(reduce=np.where(exists, reduce, 0.0), gather=np.where(exists, gather, 0.0))


def _exposed(total: Floats, *, window: Floats, overlaps: NDArray[np.bool_], layers: Floats) -> Floats:
    rest = np.maximum(total - window, total / np.maximum(layers, 1.0))
    return np.where(overlaps, rest, total)


def tied_embedding_seconds(
    candidates: CandidateArrays, *, table_elements: Floats, gradient_bytes: float, link: Link
) -> Floats:
    """First and last stage add up the gradients of the table they share, once a step, [n]; 0 without a pipeline."""
    ends = np.where(candidates.pp > 1, 2, 1)
    return link.seconds("all_reduce", num_bytes=table_elements * gradient_bytes, participants=ends)


def optimizer_seconds(
    candidates: CandidateArrays,
    *,
    parameters: RankParameters,
    states: StateBytes,
    weight_bytes: int,
    memory_bytes_per_second: float,
) -> Floats:
    """Clipping and AdamW on the fullest stage, [n]: streams over the states that a rank owns.

    AdamW reads weight, gradient and both moments and writes all but the gradient, in fp32: 28 bytes.  The norm reads
    the gradients once and they are set to zero once.  A 16-bit copy of the weights is written anew.
    """
    replicas = candidates.dp * candidates.cp
    expert_replicas = np.maximum(1, replicas // candidates.ep)
    sharded = candidates.zero_stage >= 1
    owned = parameters.dense / np.where(sharded, replicas, 1) + parameters.expert / np.where(
        sharded, expert_replicas, 1
    )
    copies = weight_bytes if weight_bytes < 4 else 0
    return (owned * (28.0 + copies) + parameters.total * 2.0 * states.gradients) / memory_bytes_per_second
