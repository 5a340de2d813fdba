from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from autotuner.domain.probe import ProbeResult
from autotuner.presets.local import local_cluster

GIB = 2**30


def probe(**changes: Any) -> ProbeResult:
    """A machine of 2 cores: 100 GFLOP/s each at K 1024, 50 at K 32; 10 GB/s; messages of 100 us and 1 GB/s."""
    document = {
        "schema": "autotuner.probe/1",
        "hostname": "here",
        "torch_version": "2.13.0",
        "device_kind": "cpu",
        "device_name": "a core",
        "cores": 2,
        "ranks": 4,
        "threads_per_rank": 1,
        "gemm": [
            {"m": 1024, "n": 1024, "k": k, "precision": "fp32", "ranks": ranks, "flops_per_second": rate}
            for k, ranks, rate in (
                (1024, 1, 100e9),
                (32, 1, 60e9),
                (1024, 2, 80e9),
                (32, 2, 40e9),
                (1024, 4, 30e9),
                (32, 4, 20e9),
            )
        ],
        "memory": [
            {"kind": "copy", "ranks": ranks, "bytes_per_second": rate}
            for ranks, rate in ((1, 2e10), (2, 1e10), (4, 4e9))
        ],
        "collectives": [
            {"op": "all_reduce", "ranks": 2, "num_bytes": 4096, "seconds": 2.1e-4},
            {"op": "all_reduce", "ranks": 2, "num_bytes": 16_000_000, "seconds": 1.621e-2},
            {"op": "send_recv", "ranks": 2, "num_bytes": 4096, "seconds": 5e-5},
        ],
        "p2p_latency_seconds": 5e-5,
        "p2p_bandwidth_bytes_per_second": 4e9,
        "op_seconds": 1e-5,
        "device_memory_bytes": 24 * GIB,
    }
    return ProbeResult.from_json({**document, **changes})


def test_a_machine_that_was_not_probed_has_no_peak_and_a_wide_uncertainty():
    cluster = local_cluster(total_memory_bytes=20 * GIB, cores=2, probe=None)
    assert (cluster.name, cluster.nodes, cluster.devices_per_node) == ("local", 1, 2)
    # 60 % of 20 GiB over 2 ranks.
    assert cluster.device.memory_bytes == 6 * GIB
    assert cluster.device.peak_flops.fp32 is None
    assert cluster.constants.compute_slots_per_node == 2
    assert (
        cluster.constants.time_sigma
        > local_cluster(total_memory_bytes=GIB, cores=2, probe=probe()).constants.time_sigma
    )


@pytest.mark.parametrize(("cores", "ranks"), [(1, 2), (2, 2), (4, 4), (64, 8)])
def test_ranks_follow_cores_unless_they_are_given(cores: int, ranks: int):
    assert local_cluster(total_memory_bytes=GIB, cores=cores, probe=None).devices_per_node == ranks
    asked = local_cluster(devices_per_node=4, total_memory_bytes=10 * GIB, cores=cores, probe=None)
    assert (asked.devices_per_node, asked.device.memory_bytes) == (4, int(1.5 * GIB))


def test_a_probe_gives_peak_efficiency_and_bandwidth_of_ranks_that_own_their_core():
    cluster = local_cluster(total_memory_bytes=20 * GIB, cores=2, probe=probe())
    # The best single product is the peak; four ranks on two cores tell nothing about a core.
    assert cluster.device.peak_flops.fp32 == 100e9
    assert cluster.device.memory_bandwidth_bytes_per_second == 1e10
    # Two busy ranks: 80 at K 1024 and 40 at K 32 of 100, so 1.25 = (1 + K0/1024)/e and 2.5 = (1 + K0/32)/e.
    slope = (2.5 - 1.25) / (1 / 32 - 1 / 1024)
    intercept = 2.5 - slope / 32
    assert cluster.constants.gemm_efficiency == pytest.approx(1 / intercept)
    assert cluster.constants.gemm_half_k == pytest.approx(slope / intercept)
    assert cluster.constants.launch_seconds == 1e-5


def test_all_reduces_give_latency_and_bandwidth_of_the_link():
    link = local_cluster(total_memory_bytes=GIB, cores=2, probe=probe()).intra_node
    # Two ranks: 2 hops in 210 us less 10 us of launching; then 16 MB in 16.21 ms less 210 us.
    assert link.latency_seconds == pytest.approx(1e-4)
    assert link.bandwidth_bytes_per_second == pytest.approx(1e9)


def test_a_probe_of_one_rank_leaves_the_link_as_it_is_without_a_probe():
    alone = local_cluster(total_memory_bytes=GIB, cores=2, probe=probe(collectives=[]))
    assert alone.intra_node == local_cluster(total_memory_bytes=GIB, cores=2, probe=None).intra_node


def test_accelerators_bring_their_own_memory_and_share_no_cores():
    found = probe(device_kind="accelerator", device_memory_bytes=80 * GIB)
    cluster = local_cluster(total_memory_bytes=GIB, cores=2, probe=found)
    assert (cluster.devices_per_node, cluster.device.memory_bytes) == (4, 80 * GIB)
    assert cluster.constants.compute_slots_per_node is None


def test_a_probe_document_of_another_schema_is_refused():
    with pytest.raises(ValidationError, match="probe again"):
        probe(schema="autotuner.probe/0")


def test_a_probe_survives_the_way_through_a_database():
    assert ProbeResult.from_json(probe().as_json()) == probe()
