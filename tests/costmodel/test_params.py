from __future__ import annotations

import numpy as np
import pytest

from autotuner.costmodel.params import count_parameters, layer_parameters, rank_parameters
from autotuner.domain.model import ModelSpec, MoeSpec
from tests.support.costmodel import GPT2, LLAMA2_7B


def test_gpt2_124m_counts_every_parameter_once():
    # h 768: a layer is 4h^2 + 4h (attention with biases) + 8h^2 + 5h (MLP) + 4h (two norms) = 7,087,872.
    assert layer_parameters(GPT2).total == 7_087_872
    # 12 layers + 50257 x 768 + 1024 x 768 + 2 x 768 = 124,439,808; the head is the embedding.
    assert count_parameters(GPT2) == 124_439_808


def test_llama_2_7b_counts_every_parameter_once():
    # 32 (4 x 4096^2 + 3 x 4096 x 11008 + 2 x 4096) + 2 x 32000 x 4096 + 4096.
    assert count_parameters(LLAMA2_7B) == 6_738_415_616


def test_grouped_query_attention_shrinks_only_keys_and_values():
    grouped = LLAMA2_7B.model_copy(update={"num_kv_heads": 8})
    # Two projections of 4096 x 4096 become 4096 x 1024 in each of 32 layers.
    assert count_parameters(LLAMA2_7B) - count_parameters(grouped) == 32 * 2 * 4096 * (4096 - 1024)


def test_experts_are_counted_each_and_the_router_once():
    model = ModelSpec(
        num_layers=1,
        hidden_size=8,
        num_heads=2,
        vocab_size=16,
        max_seq_len=4,
        biases=False,
        moe=MoeSpec(num_experts=4, experts_per_token=2, expert_ffn_hidden_size=32),
    )
    # attention 4 x 64 + experts 4 x 2 x 8 x 32 + router 8 x 4 + norms 2 x 16; embedding 128 + positions 32 + norm 16.
    assert count_parameters(model) == 256 + 2048 + 32 + 32 + 128 + 32 + 16


@pytest.mark.parametrize("model", [GPT2, LLAMA2_7B])
def test_one_rank_alone_holds_the_whole_model(model: ModelSpec):
    held = rank_parameters(model, layers=model.num_layers, is_first=True, is_last=True, tp=1, ep=1)
    assert held.total == count_parameters(model)


def test_tensor_parallel_ranks_copy_norms_and_row_biases_and_pad_the_vocabulary():
    held = rank_parameters(GPT2, layers=1, is_first=True, is_last=False, tp=4, ep=1)
    # Layer: 12h^2 weights and 7h column biases split in 4; 4h of norms and 2h of row biases on every rank.
    layer = (12 * 768**2 + 7 * 768) / 4 + 6 * 768
    # 50257 rows need 4 blocks of 12565; positions are copied.
    assert held.total == layer + 12_565 * 768 + 1024 * 768


def test_last_stage_holds_its_own_copy_of_a_tied_embedding():
    held = rank_parameters(
        GPT2, layers=np.array([6, 6]), is_first=np.array([True, False]), is_last=np.array([False, True]), tp=1, ep=1
    )
    table = 50_257 * 768
    assert held.total.tolist() == [6 * 7_087_872 + table + 1024 * 768, 6 * 7_087_872 + table + 2 * 768]


def test_key_value_heads_are_copied_when_there_are_fewer_than_tensor_ranks():
    model = LLAMA2_7B.model_copy(update={"num_kv_heads": 2})
    two, eight = (rank_parameters(model, layers=1, is_first=False, is_last=False, tp=tp, ep=1).total for tp in (2, 8))
    key_value_head = 2 * 4096 * 128  # one head's keys and values: a rank of 2 or of 8 holds just one
    norms = 2 * 4096
    assert (two - key_value_head - norms) / (eight - key_value_head - norms) == 4.0
