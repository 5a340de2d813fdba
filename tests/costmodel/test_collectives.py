from __future__ import annotations

import numpy as np
import pytest

from autotuner.costmodel.collectives import Link, Operation
from autotuner.costmodel.topology import members_per_node, topology_of
from autotuner.domain.parallel import ParallelConfig
from tests.support.costmodel import arrays, round_cluster

LINK = Link(bandwidth_bytes_per_second=np.array([1e9]), latency_seconds=np.array([1e-6]), launch_seconds=1e-5)


@pytest.mark.parametrize(
    ("operation", "seconds"),
    [
        ("all_reduce", 1e-5 + 6e-6 + 1.5),  # 2 x 3 hops, 2 x 3/4 of 1 GB at 1 GB/s
        ("reduce_scatter", 1e-5 + 3e-6 + 0.75),
        ("all_gather", 1e-5 + 3e-6 + 0.75),
        ("all_to_all", 1e-5 + 1e-6 + 0.75),
        ("send", 1e-5 + 1e-6 + 1.0),
    ],
)
def test_ring_times_of_one_gigabyte_over_four_ranks(operation: Operation, seconds: float):
    assert LINK.seconds(operation, num_bytes=1e9, participants=4)[0] == pytest.approx(seconds)


def test_a_small_all_reduce_over_many_ranks_goes_over_a_tree():
    # 2 log2(64) = 12 hops instead of 126.
    assert LINK.seconds("all_reduce", num_bytes=0, participants=64)[0] == pytest.approx(1e-5 + 12e-6)


def test_a_rank_alone_sends_nothing():
    assert LINK.seconds("all_reduce", num_bytes=1e9, participants=1)[0] == 0.0


@pytest.mark.parametrize(
    ("stride", "size", "inside"),
    [(1, 8, 8), (1, 16, 8), (8, 4, 1), (2, 4, 4), (2, 16, 4), (4, 16, 2), (16, 2, 1)],
)
def test_members_of_a_group_on_one_node_of_eight(stride: int, size: int, inside: int):
    found = members_per_node(stride=np.array([float(stride)]), size=np.array([float(size)]), devices_per_node=8)
    assert found[0] == inside


def test_tensor_groups_stay_inside_and_replicas_share_the_network_cards():
    # 4 nodes of 8: tp 2, dp 8, pp 2. A replica group has stride 2, so 4 members a node on 2 nodes: 4 x 10 GB/s.
    links = topology_of(arrays(ParallelConfig(tp=2, dp=8, pp=2)), round_cluster(nodes=4))
    assert links.tensor.bandwidth_bytes_per_second[0] == 1e11
    assert links.gradient.bandwidth_bytes_per_second[0] == 4e10
    # Stages are 16 ranks apart: every message crosses, over one device's share of the network.
    assert links.pipeline.bandwidth_bytes_per_second[0] == 1e10
    assert links.pipeline.latency_seconds[0] == pytest.approx(1e-5)


def test_a_ring_over_nodes_is_never_faster_than_the_link_inside():
    # tp 16 over 2 nodes of 8 would get 8 x 10 GB/s; over 16 devices a node, 16 x 10 > 100 GB/s.
    two = topology_of(arrays(ParallelConfig(tp=16)), round_cluster(nodes=2))
    assert two.tensor.bandwidth_bytes_per_second[0] == 8e10
    wide = topology_of(arrays(ParallelConfig(tp=32)), round_cluster(nodes=2, devices_per_node=16))
    assert wide.tensor.bandwidth_bytes_per_second[0] == 1e11
