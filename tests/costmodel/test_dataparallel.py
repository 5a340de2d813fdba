from __future__ import annotations

import numpy as np
import pytest

from autotuner.costmodel.dataparallel import Windows, exposed_gradient_seconds, optimizer_seconds
from autotuner.costmodel.params import RankParameters
from autotuner.costmodel.software import StateBytes
from autotuner.costmodel.topology import topology_of
from autotuner.domain.parallel import ParallelConfig
from tests.support.costmodel import arrays, round_cluster

STATES = StateBytes(weights=2.0, gradients=4.0, optimizer=12.0)
ONE_BILLION = RankParameters(dense=np.array([1e9]), expert=np.array([0.0]))


def _exposed(config: ParallelConfig, *, backward: float = 0.0, spare: float = 1.0) -> float:
    candidates, cluster = arrays(config), round_cluster()
    found = exposed_gradient_seconds(
        candidates,
        parameters=ONE_BILLION,
        states=STATES,
        weight_bytes=2,
        microbatches=np.array([3.0]),
        topology=topology_of(candidates, cluster),
        windows=Windows(forward=np.array([0.0]), backward=np.array([backward]), layers=np.array([10.0])),
        spare=np.array([spare]),
    )
    return float(found[0])


# 4 replicas at 100 GB/s: gradients 4 GB, weights 2 GB, latency of 1 us a hop aside.
@pytest.mark.parametrize(
    ("zero", "seconds"),
    [
        (0, 1.5 * 0.04),  # one all-reduce
        (1, 0.75 * (0.04 + 0.02)),  # a reduce-scatter and an all-gather
        (2, 0.75 * (3 * 0.04 + 0.02)),  # a reduce-scatter after each of 3 micro-batches
        (3, 0.75 * (3 * 0.04 + 6 * 0.02)),  # and the weights for each forward and backward
    ],
)
def test_traffic_of_each_zero_stage(zero: int, seconds: float):
    assert _exposed(ParallelConfig(dp=4, zero_stage=zero)) == pytest.approx(seconds, rel=1e-3)


def test_overlap_hides_what_fits_behind_one_backward_but_never_the_last_layer():
    overlapped = ParallelConfig(dp=4, overlap_grad_reduce=True)
    assert _exposed(overlapped, backward=0.02) == pytest.approx(0.04, rel=1e-3)
    # Of ten layers' gradients the last has nothing to hide behind.
    assert _exposed(overlapped, backward=10.0) == pytest.approx(0.006, rel=1e-3)
    # On cores that are all busy computing there is nothing to hide behind at all.
    assert _exposed(overlapped, backward=10.0, spare=0.0) == pytest.approx(0.06, rel=1e-3)


def test_a_single_replica_sends_nothing():
    assert _exposed(ParallelConfig(dp=1)) == 0.0


@pytest.mark.parametrize(("zero", "bytes_per_parameter"), [(0, 30 + 8), (1, 30 / 4 + 8)])
def test_optimizer_streams_its_states_once(zero: int, bytes_per_parameter: float):
    seconds = optimizer_seconds(
        arrays(ParallelConfig(dp=4, zero_stage=zero)),
        parameters=ONE_BILLION,
        states=STATES,
        weight_bytes=2,
        memory_bytes_per_second=1e12,
    )
    # 28 bytes of fp32 states and a 16-bit copy for what is owned; the norm and clearing read and write all gradients.
    assert seconds[0] == pytest.approx(bytes_per_parameter * 1e-3)
