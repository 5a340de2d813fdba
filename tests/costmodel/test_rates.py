from __future__ import annotations

import numpy as np
import pytest

from autotuner.costmodel.compute import gemm_seconds
from autotuner.costmodel.estimator import Estimator
from autotuner.costmodel.rates import Rates, assumed_peak_flops, compute_share
from autotuner.domain.cluster import DeviceSpec, PeakFlops
from autotuner.domain.parallel import ParallelConfig
from tests.support.costmodel import GPT2, SMALL, round_cluster

RATES = Rates(
    flops_per_second=1e12,
    half_k=100.0,
    memory_bytes_per_second=1e11,
    launch_seconds=1e-5,
    element_bytes=2,
    sequential_launch=False,
)


def test_a_product_reaches_half_its_rate_at_the_half_k():
    # 2 x 1000 x 1000 x 100 operations at 1 TFLOP/s x 100 / (100 + 100).
    assert gemm_seconds(1000.0, 1000.0, 100.0, rates=RATES) == pytest.approx(2e8 / 5e11)


def test_a_thin_product_takes_as_long_as_its_operands_need():
    # 1 x 10000 times 10000 x 10000: 2 bytes of 100,020,000 elements at 100 GB/s, far above 0.2 ms of arithmetic.
    assert gemm_seconds(1.0, 10_000.0, 10_000.0, rates=RATES) == pytest.approx(2 * 100_020_000 / 1e11)


def test_launching_hides_behind_a_device_but_not_behind_a_core():
    work = np.array([1e-6, 1.0])
    assert RATES.with_launches(work, operations=10).tolist() == [1e-4, 1.0]
    core = Rates(**{name: getattr(RATES, name) for name in RATES.__slots__} | {"sequential_launch": True})
    assert core.with_launches(work, operations=10).tolist() == pytest.approx([1e-6 + 1e-4, 1.0 + 1e-4])


def test_ranks_that_outnumber_slots_share_them_unless_they_wait():
    cluster = round_cluster(devices_per_node=4, slots=2)
    share = compute_share(cluster, world_size=np.array([4, 4, 2]), activity=np.array([1.0, 0.5, 1.0]))
    # 4 busy ranks on 2 slots get half; 4 that are busy half of the time get all they ask for.
    assert share.tolist() == [0.5, 1.0, 1.0]


def test_four_replicas_on_two_cores_are_no_faster_than_two():
    two = Estimator(GPT2, SMALL, round_cluster(devices_per_node=2, slots=2)).estimate_one(ParallelConfig(dp=2))
    four = Estimator(GPT2, SMALL, round_cluster(devices_per_node=4, slots=2)).estimate_one(ParallelConfig(dp=4))
    assert four.step_seconds > two.step_seconds


@pytest.mark.parametrize(
    ("peaks", "precision", "expected"),
    [
        (PeakFlops(bf16=3e14), "bf16", 3e14),
        (PeakFlops(bf16=3e14), "fp32", 1.5e14),
        (PeakFlops(fp16=1e14), "bf16", 1e14),
        (PeakFlops(fp32=2e13), "fp8", 2e13),
        (PeakFlops(), "bf16", 150 * 1e12),
    ],
)
def test_an_unknown_peak_is_assumed_from_what_is_known(peaks: PeakFlops, precision: str, expected: float):
    device = DeviceSpec(name="d", memory_bytes=1, peak_flops=peaks, memory_bandwidth_bytes_per_second=1e12)
    assert assumed_peak_flops(device, precision=precision) == pytest.approx(expected)
