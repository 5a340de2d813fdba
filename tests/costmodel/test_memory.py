from __future__ import annotations

import numpy as np
import pytest

from autotuner.costmodel.estimator import Estimator
from autotuner.costmodel.memory import layer_activation_bytes, microbatches_in_flight
from autotuner.costmodel.software import BUNDLED, MEGATRON_2022
from autotuner.domain.parallel import ParallelConfig
from autotuner.domain.workload import Workload
from tests.support.costmodel import GPT2, GPT3, LLAMA2_7B, SMALL, arrays, round_cluster

SBH = 2048 * 1 * 12288


def _kept(*, tp: int = 8, sequence_parallel: bool = False, recompute: str = "none") -> float:
    config = ParallelConfig(tp=tp, sequence_parallel=sequence_parallel, recompute=recompute)
    kept = layer_activation_bytes(GPT3, arrays(config), seq_len=2048, element_bytes=2, software=MEGATRON_2022)
    return float(kept[0])


# 5as/h of GPT-3: 5 x 96 x 2048 / 12288 = 80 (Korthikanti et al. 2022, section 4).
@pytest.mark.parametrize(
    ("options", "per_sbh"),
    [
        ({"tp": 1}, 34 + 80),
        ({"tp": 8}, 10 + 24 / 8 + 80 / 8),
        ({"tp": 8, "sequence_parallel": True}, (34 + 80) / 8),
        ({"tp": 8, "recompute": "selective"}, 10 + 24 / 8),
        ({"tp": 8, "sequence_parallel": True, "recompute": "selective"}, 34 / 8),
        ({"tp": 8, "recompute": "full"}, 2),
        ({"tp": 8, "sequence_parallel": True, "recompute": "full"}, 2 / 8),
    ],
)
def test_a_layer_keeps_what_the_published_formulas_say(options: dict[str, object], per_sbh: float):
    assert _kept(**options) == pytest.approx(per_sbh * SBH)


def test_a_fused_core_without_dropout_keeps_no_scores_and_no_masks():
    kept = layer_activation_bytes(GPT3, arrays(ParallelConfig()), seq_len=2048, element_bytes=2, software=BUNDLED)
    # 34 less two masks of one byte; one fp32 sum for each of 96 x 2048 rows.
    assert kept[0] == pytest.approx(32 * SBH + 4 * 96 * 2048)


def test_fp32_activations_are_twice_as_large():
    two, four = (
        layer_activation_bytes(GPT3, arrays(ParallelConfig()), seq_len=2048, element_bytes=size, software=BUNDLED)[0]
        for size in (2, 4)
    )
    sums = 4 * 96 * 2048
    assert four - sums == pytest.approx(2 * (two - sums))


def test_grouped_gated_layer_keeps_fewer_keys_and_four_wide_tensors():
    model = LLAMA2_7B.model_copy(update={"num_kv_heads": 8})
    kept = layer_activation_bytes(model, arrays(ParallelConfig()), seq_len=4096, element_bytes=2, software=BUNDLED)
    # Per token: 4h around, 2h for queries and context, 2 x 1024 keys and values, 4f; then one sum per head.
    assert kept[0] == pytest.approx(4096 * (2 * (6 * 4096 + 2 * 1024 + 4 * 11008) + 4 * 32))


@pytest.mark.parametrize(
    ("m", "p", "v", "stage", "expected"),
    [
        (64, 8, 1, 0, 8),  # 1F1B: as many as stages from here to the end
        (64, 8, 1, 7, 1),
        (3, 8, 1, 0, 3),  # never more than there are
        (1, 1, 1, 0, 1),
        (64, 8, 3, 0, 8 * (1 + 7 / 24)),  # interleaved: p (1 + (p - 1)/(pv))
        (64, 8, 3, 7, 17 / 3),  # last stage: (v - 1)p + 1 chunks of a third of a stage
    ],
)
def test_micro_batches_in_flight(m: int, p: int, v: int, stage: int, expected: float):
    assert microbatches_in_flight(microbatches=m, pp=p, virtual_stages=v, stage=stage) == pytest.approx(expected)


# 124,439,808 parameters on one rank of 4 replicas: (not sharded, sharded) bytes each.
@pytest.mark.parametrize(
    ("precision", "zero", "weights", "gradients", "optimizer"),
    [
        ("fp32", 0, 4, 4, 8),
        ("fp32", 1, 4, 4, 2),
        ("fp32", 2, 4, 1, 2),
        ("fp32", 3, 1, 1, 2),
        ("bf16", 0, 6, 4, 8),
        ("bf16", 1, 6, 4, 2),
    ],
)
def test_model_states_of_the_bundled_trainer(
    precision: str, zero: int, weights: float, gradients: float, optimizer: float
):
    workload = SMALL.model_copy(update={"precision": precision})
    held = Estimator(GPT2, workload, round_cluster()).stage_bytes(ParallelConfig(dp=4, zero_stage=zero))
    assert held.weights[0, 0] == pytest.approx(weights * 124_439_808)
    assert held.gradients[0, 0] == pytest.approx(gradients * 124_439_808)
    assert held.optimizer[0, 0] == pytest.approx(optimizer * 124_439_808)


@pytest.mark.parametrize(("precision", "total"), [("fp16", 20.0), ("bf16", 18.0), ("fp32", 16.0)])
def test_megatron_states_add_up_to_the_published_bytes(precision: str, total: float):
    assert MEGATRON_2022.states[precision].total == total


def test_gpt3_activations_are_those_of_the_published_figure():
    # Korthikanti et al. 2022, figure 1: 175B, t 8, p 8, v 3, b 1, sequence parallel and selective: the first stage's
    # L/p layers keep 34 sbh/t of p (1 + (p - 1)/(pv)) micro-batches: 96 x 34 x 2048 x 12288 / 8 x 1.2917 bytes.
    config = ParallelConfig(tp=8, pp=8, virtual_stages=3, sequence_parallel=True, recompute="selective")
    workload = Workload(seq_len=2048, global_batch_size=64, precision="bf16")
    held = Estimator(GPT3, workload, round_cluster(), software=MEGATRON_2022).stage_bytes(config)
    assert held.activations[0, 0] == pytest.approx(96 * 34 * SBH / 8 * (1 + 7 / 24))


def test_logits_are_kept_on_the_last_stage_only():
    held = Estimator(GPT2, SMALL, round_cluster(), software=MEGATRON_2022).stage_bytes(ParallelConfig(pp=4))
    # 1024 tokens: 50257 logits of 10 bytes, and three tensors of 768 elements of 2 bytes.
    assert held.logits[0].tolist() == [0.0, 0.0, 0.0, 1024 * 50_257 * 10.0 + 3 * 2 * 1024 * 768]


def test_fullest_stage_of_the_table_is_the_fullest_of_all_stages():
    configs = [
        ParallelConfig(tp=tp, pp=pp, micro_batch_size=b, virtual_stages=v if pp > 1 else 1)
        for tp in (1, 2)
        for pp in (1, 2, 3, 4, 5, 6)
        for b in (1, 4)
        for v in (1, 2)
    ]
    estimator = Estimator(GPT2, SMALL, round_cluster())
    table = estimator.evaluate(configs)
    every = [estimator.stage_bytes(config).total.max() for config in configs]
    np.testing.assert_allclose(table.memory_bytes, every, rtol=1e-12)
