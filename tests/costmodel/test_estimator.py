from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotuner.costmodel.candidates import CandidateArrays
from autotuner.costmodel.estimator import Estimator
from autotuner.costmodel.flops import hardware_flops_per_step
from autotuner.costmodel.normal import normal_cdf
from autotuner.costmodel.software import MEGATRON_2022
from autotuner.domain.cluster import ClusterSpec
from autotuner.domain.errors import InvalidInput
from autotuner.domain.parallel import ParallelConfig
from autotuner.domain.workload import Workload
from autotuner.presets.loader import cluster_preset
from tests.support.costmodel import GPT2, GPT3, SMALL, round_cluster

SIZES = st.sampled_from([1, 2, 4])


@st.composite
def layouts(draw: st.DrawFn) -> ParallelConfig:
    """Layouts of GPT-2 that divide a batch of 64."""
    pp = draw(SIZES)
    return ParallelConfig(
        tp=draw(SIZES),
        pp=pp,
        dp=draw(SIZES),
        virtual_stages=draw(st.sampled_from([1, 3])) if pp > 1 else 1,
        micro_batch_size=draw(SIZES),
        sequence_parallel=draw(st.booleans()),
        zero_stage=draw(st.integers(0, 3)),
        recompute=draw(st.sampled_from(["none", "selective", "full"])),
        overlap_grad_reduce=draw(st.booleans()),
        overlap_param_gather=draw(st.booleans()),
    )


@settings(max_examples=50, deadline=None)
@given(st.lists(layouts(), min_size=1, max_size=5))
def test_many_at_once_are_estimated_as_one_by_one_and_parts_sum_to_totals(configs: list[ParallelConfig]):
    estimator = Estimator(GPT2, SMALL, round_cluster(nodes=8))
    table = estimator.evaluate(configs)
    for index, config in enumerate(configs):
        row, alone = table.at(index), estimator.estimate_one(config)
        assert row.config == config
        assert row.step_seconds == pytest.approx(alone.step_seconds, rel=1e-12)
        assert row.memory_bytes == pytest.approx(alone.memory_bytes, rel=1e-12)
        assert sum(row.time.as_json().values()) == pytest.approx(row.step_seconds, rel=1e-9)
        assert all(part >= 0.0 for part in row.time.as_json().values())
        assert len(row.memory) == config.pp
        assert sum(stage.num_layers for stage in row.memory) == 12
        for stage in row.memory:
            assert sum(stage.parts.as_json().values()) == pytest.approx(stage.total_bytes, rel=1e-9)
        assert max(stage.total_bytes for stage in row.memory) == pytest.approx(row.memory_bytes, rel=1e-9)
        assert row.tokens_per_second == pytest.approx(65_536 / row.step_seconds)


@settings(max_examples=50, deadline=None)
@given(layouts(), st.floats(0.0, 0.9), st.floats(0.0, 0.9))
def test_more_headroom_never_makes_a_layout_more_likely_to_fit(config: ParallelConfig, one: float, two: float):
    cluster = round_cluster(memory_bytes=4 * 10**9)
    less, more = (
        Estimator(GPT2, SMALL, cluster, memory_headroom=headroom).estimate_one(config).probability_fits
        for headroom in sorted((one, two))
    )
    assert 0.0 <= more <= less <= 1.0


@settings(max_examples=50, deadline=None)
@given(layouts())
def test_recomputation_and_sharding_never_cost_memory_and_a_faster_device_never_time(config: ParallelConfig):
    estimator = Estimator(GPT2, SMALL, round_cluster(nodes=8))
    kept, full = (
        estimator.stage_bytes(config.model_copy(update={"recompute": mode})).activations.sum()
        for mode in ("none", "full")
    )
    assert full < kept
    states = [
        sum(getattr(held, part).sum() for part in ("weights", "gradients", "optimizer"))
        for held in (estimator.stage_bytes(config.model_copy(update={"zero_stage": z})) for z in range(4))
    ]
    assert states == sorted(states, reverse=True)
    faster = _with_bandwidth(estimator.cluster, factor=2.0)
    quick = Estimator(GPT2, SMALL, faster).estimate_one(config).step_seconds
    assert quick <= estimator.estimate_one(config).step_seconds


def _with_bandwidth(cluster: ClusterSpec, *, factor: float) -> ClusterSpec:
    bandwidth = cluster.device.memory_bandwidth_bytes_per_second * factor
    device = cluster.device.model_copy(update={"memory_bandwidth_bytes_per_second": bandwidth})
    return cluster.model_copy(update={"device": device})


def test_gpt3_on_1024_a100_is_near_the_published_utilisation():
    # SC 2021, section 5: 175B on 1,024 A100 reaches about 140 TFLOP/s, 44 % of 312, recomputation counted.
    cluster = cluster_preset("dgx-a100-superpod", nodes=128)
    workload = Workload(seq_len=2048, global_batch_size=1536, precision="fp16")
    config = ParallelConfig(tp=8, pp=16, dp=8, recompute="full")
    estimate = Estimator(GPT3, workload, cluster, software=MEGATRON_2022).estimate_one(config)
    hardware = hardware_flops_per_step(GPT3, workload, recompute="full")
    assert 0.38 < hardware / (estimate.step_seconds * 1024 * 312e12) < 0.50
    assert estimate.fits
    # (p - 1)/m = 15/192, a little less because the last stage's head makes the slowest stage slower.
    assert 0.07 < estimate.bubble_fraction < 15 / 192


def test_a_layout_at_the_limit_fits_with_even_odds():
    estimator = Estimator(GPT2, SMALL, round_cluster())
    needed = estimator.estimate_one(ParallelConfig()).memory_bytes
    tight = Estimator(GPT2, SMALL, round_cluster(memory_bytes=round(needed)))
    assert tight.estimate_one(ParallelConfig()).probability_fits == pytest.approx(0.5, abs=1e-6)
    # One deviation of 0.08 below the limit: 84 %.
    roomy = Estimator(GPT2, SMALL, round_cluster(memory_bytes=round(needed * math.exp(0.08))))
    assert roomy.estimate_one(ParallelConfig()).probability_fits == pytest.approx(0.8413, abs=1e-4)


def test_order_puts_what_surely_does_not_fit_behind_slower_layouts_that_do():
    fast, slow = ParallelConfig(tp=1, dp=8), ParallelConfig(tp=8, dp=1)
    roomy = Estimator(GPT2, SMALL, round_cluster()).evaluate([slow, fast])
    assert roomy.order().tolist() == [1, 0]
    memory = roomy.memory_bytes
    between = round(float(np.sqrt(memory[0] * memory[1])))
    tight = Estimator(GPT2, SMALL, round_cluster(memory_bytes=between)).evaluate([slow, fast])
    assert tight.order().tolist() == [0, 1]


def test_columns_give_back_the_layouts_they_were_made_of():
    configs = [ParallelConfig(tp=2, pp=2, virtual_stages=3, recompute="full", zero_stage=2), ParallelConfig(dp=4)]
    columns = CandidateArrays.of(configs)
    assert [columns.config(index) for index in range(2)] == configs
    assert columns.take(np.array([1, 1])).world_size.tolist() == [4, 4]
    assert len(Estimator(GPT2, SMALL, round_cluster()).evaluate([])) == 0


@pytest.mark.parametrize("headroom", [-0.1, 1.0])
def test_an_impossible_headroom_is_refused(headroom: float):
    with pytest.raises(InvalidInput, match="memory_headroom"):
        Estimator(GPT2, SMALL, round_cluster(), memory_headroom=headroom)


def test_normal_distribution_matches_the_error_function():
    z = np.linspace(-6, 6, 101)
    exact = [0.5 * math.erfc(-value / math.sqrt(2)) for value in z]
    np.testing.assert_allclose(normal_cdf(z), exact, atol=2e-7)
