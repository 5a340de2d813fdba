from __future__ import annotations

import pytest

from autotuner.costmodel.flops import (
    hardware_flops_per_step,
    mfu,
    model_flops_per_step,
    tokens_per_second,
    tokens_per_second_per_device,
)
from autotuner.domain.cluster import PeakFlops
from autotuner.domain.workload import Workload
from tests.support.costmodel import GPT3, LLAMA2_7B, round_cluster

# B 1536, s 2048, L 96, h 12288, V 51200 (SC 2021, section 5).
BATCH = Workload(seq_len=2048, global_batch_size=1536, precision="bf16")


def test_model_flops_are_those_of_the_published_formula():
    # 72 B s L h^2 (1 + s/6h + V/12Lh)
    expected = 72 * 1536 * 2048 * 96 * 12288**2 * (1 + 2048 / (6 * 12288) + 51200 / (12 * 96 * 12288))
    assert model_flops_per_step(GPT3, BATCH) == pytest.approx(expected, rel=1e-12)


def test_full_recomputation_adds_one_forward_of_the_layers():
    # 96 B s L h^2 (1 + s/6h + V/16Lh)
    expected = 96 * 1536 * 2048 * 96 * 12288**2 * (1 + 2048 / (6 * 12288) + 51200 / (16 * 96 * 12288))
    assert hardware_flops_per_step(GPT3, BATCH, recompute="full") == pytest.approx(expected, rel=1e-12)


def test_selective_recomputation_adds_the_attention_core():
    # 4 B s^2 L h: one more forward of scores and context.
    added = hardware_flops_per_step(GPT3, BATCH, recompute="selective") - model_flops_per_step(GPT3, BATCH)
    assert added == 4 * 1536 * 2048**2 * 96 * 12288
    assert hardware_flops_per_step(GPT3, BATCH, recompute="none") == model_flops_per_step(GPT3, BATCH)


def test_gated_model_counts_three_products_in_its_mlp():
    one = Workload(seq_len=4096, global_batch_size=1, precision="bf16")
    # 6 x (32 layers of 4 x 4096^2 + 3 x 4096 x 11008, and the head of 32000 x 4096) + 12 L h s, per token.
    weights = 32 * (4 * 4096**2 + 3 * 4096 * 11008) + 32000 * 4096
    assert model_flops_per_step(LLAMA2_7B, one) == 4096 * (6 * weights + 12 * 32 * 4096 * 4096)


def test_throughput_is_tokens_over_seconds():
    # 1536 x 2048 tokens in 24 s on 1024 devices.
    assert tokens_per_second(BATCH, step_seconds=24.0) == 131_072.0
    assert tokens_per_second_per_device(BATCH, step_seconds=24.0, num_devices=1024) == 128.0


def test_mfu_is_the_share_of_all_devices_peaks():
    cluster = round_cluster(nodes=2)  # 16 devices of 1 PFLOP/s
    seconds = model_flops_per_step(GPT3, BATCH) / 16e15
    assert mfu(GPT3, BATCH, cluster, step_seconds=seconds) == pytest.approx(1.0)
    assert mfu(GPT3, BATCH, cluster, step_seconds=4 * seconds) == pytest.approx(0.25)


def test_mfu_is_unknown_while_the_peak_is():
    cluster = round_cluster()
    device = cluster.device.model_copy(update={"peak_flops": PeakFlops(fp32=1e12)})
    assert mfu(GPT3, BATCH, cluster.model_copy(update={"device": device}), step_seconds=1.0) is None


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_a_step_that_takes_no_time_is_refused(seconds: float):
    with pytest.raises(ValueError, match="more than 0"):
        tokens_per_second(BATCH, step_seconds=seconds)
    with pytest.raises(ValueError, match="more than 0"):
        mfu(GPT3, BATCH, round_cluster(), step_seconds=seconds)
