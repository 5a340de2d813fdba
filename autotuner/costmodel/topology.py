"""Which groups of ranks leave a node, and what bandwidth a group then gets.

Ranks are placed as in `trials/ranks.py`: tp fastest, then cp, dp and pp, filling one node after the other.  Decides
shares of links; how long a message takes over them is `collectives.py`'s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotuner.costmodel.candidates import CandidateArrays
from autotuner.costmodel.collectives import Link
from autotuner.domain.cluster import ClusterSpec

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The link of each kind of group, fields of each link [n].

    `tensor`, `context`, `gradient` (dp x cp, over which gradients are reduced), `expert` (expert parallel peers),
    `expert_gradient`, `pipeline` (a stage and the next one), `ends` (first and last stage) and `all` ranks.
    """

    tensor: Link
    context: Link
    gradient: Link
    expert: Link
    expert_gradient: Link
    pipeline: Link
    ends: Link
    all: Link


def topology_of(candidates: CandidateArrays, cluster: ClusterSpec) -> Topology:
    """The links of n layouts on a cluster."""
    tp, cp, dp, pp = (getattr(candidates, axis).astype(np.float64) for axis in ("tp", "cp", "dp", "pp"))
    ep = candidates.ep.astype(np.float64)
    replicas, stage = dp * cp, tp * dp * cp
    one = np.ones_like(tp)
    ends = np.where(pp > 1, 2.0, 1.0)
    return Topology(
        tensor=_link(cluster, stride=one, size=tp),
        context=_link(cluster, stride=tp, size=cp),
        gradient=_link(cluster, stride=tp, size=replicas),
        expert=_link(cluster, stride=tp, size=ep),
        expert_gradient=_link(cluster, stride=tp * ep, size=np.maximum(1.0, replicas / ep)),
        pipeline=_link(cluster, stride=stage, size=pp),
        ends=_link(cluster, stride=stage * np.maximum(pp - 1, 1), size=ends),
        all=_link(cluster, stride=one, size=stage * pp),
    )


def members_per_node(*, stride: Floats, size: Floats, devices_per_node: int) -> Floats:
    """Members of a group of `size` ranks, `stride` apart, that share a node: at least 1."""
    inside: Floats = np.maximum(1.0, np.minimum(size, np.floor(devices_per_node / stride)))
    return inside


def _link(cluster: ClusterSpec, *, stride: Floats, size: Floats) -> Link:
    """Bandwidth of one ring of the group, all groups of its kind being busy at once.

    A ring through several nodes enters and leaves each node once, so the members of a group on a node share their
    network cards for it: members x the bandwidth of one device, never more than the link inside the node.
    """
    constants = cluster.constants
    inside = members_per_node(stride=stride, size=size, devices_per_node=cluster.devices_per_node)
    intra = cluster.intra_node.bandwidth_bytes_per_second * constants.intra_node_efficiency
    inter = cluster.inter_node.bandwidth_bytes_per_second * constants.inter_node_efficiency
    crosses = size > inside
    # Of a ring's hops, one per node goes over the network.
    network_hops = np.where(crosses, 1.0 / inside, 0.0)
    latency = (
        network_hops * cluster.inter_node.latency_seconds + (1 - network_hops) * cluster.intra_node.latency_seconds
    )
    return Link(
        bandwidth_bytes_per_second=np.where(crosses, np.minimum(intra, inter * inside), intra),
        latency_seconds=latency,
        launch_seconds=constants.launch_seconds,
    )
