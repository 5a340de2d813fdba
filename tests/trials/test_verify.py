"""Parameters are counted by formula as published, and another model than the asked one is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.run_requests import GPT2, LLAMA, layout, run_request_for
from trials.contract import Layout, ModelShape
from trials.failures import MismatchError
from trials.verify import check_built, check_request, expected_built, expected_parameters

GPT2_SMALL = replace(
    GPT2,
    num_layers=12,
    hidden_size=768,
    num_heads=12,
    num_kv_heads=12,
    head_dim=64,
    ffn_hidden_size=3072,
    vocab_size=50_257,
    max_seq_len=1024,
)
LLAMA2_7B = replace(
    LLAMA,
    num_layers=32,
    hidden_size=4096,
    num_heads=32,
    num_kv_heads=32,
    head_dim=128,
    ffn_hidden_size=11_008,
    vocab_size=32_000,
)
LLAMA3_8B = replace(LLAMA2_7B, num_kv_heads=8, ffn_hidden_size=14_336, vocab_size=128_256)


@pytest.mark.parametrize(
    ("model", "published"),
    [(GPT2_SMALL, 124_439_808), (LLAMA2_7B, 6_738_415_616), (LLAMA3_8B, 8_030_261_248)],
    ids=["GPT-2 124M", "Llama 2 7B", "Llama 3 8B"],
)
def test_the_formula_gives_published_counts(model: ModelShape, published: int) -> None:
    assert expected_parameters(model) == published


def test_biases_of_a_gated_mlp_count_for_gate_and_up() -> None:
    # A layer of LLAMA gains (12 + 2 x 2) x 4 = 64 for queries, keys, values, 40, 2 x 72 and 40: 288; five layers.
    assert expected_parameters(replace(LLAMA, biases=True)) - expected_parameters(LLAMA) == 5 * 288


def test_a_legal_request_passes() -> None:
    check_request(run_request_for(LLAMA, layout(4, 1, 1)), world_size=4)


@pytest.mark.parametrize(
    ("model", "sizes", "words"),
    [
        (GPT2, (5, 1, 1), "num_heads 12 is not divisible by tp 5"),
        (replace(GPT2, ffn_hidden_size=97), (2, 1, 1), "ffn_hidden_size 97 is not divisible by tp 2"),
        (LLAMA, (3, 1, 1), "num_kv_heads 2 and tp 3: one must divide the other"),
        (replace(GPT2, num_kv_heads=5), (1, 1, 1), "num_heads 12 is not divisible by num_kv_heads 5"),
        (GPT2, (1, 6, 1), "pp 6 is more than num_layers 5"),
        (replace(LLAMA, head_dim=5), (1, 1, 1), "rotary positions need an even head_dim, not 5"),
        # ceil(5 / 4) = 2 rows for each of three ranks are more than 5.
        (replace(GPT2, vocab_size=5), (4, 1, 1), "vocab_size 5 leaves no row for the last of tp 4 ranks"),
    ],
)
def test_an_illegal_layout_is_refused_with_its_numbers(
    model: ModelShape, sizes: tuple[int, int, int], words: str
) -> None:
    request = run_request_for(model, layout(*sizes))
    with pytest.raises(MismatchError) as refused:
        check_request(request, world_size=request.layout.world_size)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (layout(1, 1, 1, virtual_stages=2), "virtual_stages 2 needs a pipeline, and pp is 1"),
        (layout(1, 2, 1, virtual_stages=3), "set virtual_stages to 2 at most"),
        # 12 sequences, 4 to a micro-batch: 3 micro-batches.
        (layout(1, 2, 1, virtual_stages=2, micro_batch_size=4), "3 micro-batches are no multiple of pp 2"),
    ],
)
def test_stages_that_cannot_be_interleaved_are_refused(shape: Layout, words: str) -> None:
    with pytest.raises(MismatchError) as refused:
        check_request(run_request_for(GPT2, shape), world_size=shape.world_size)
    assert words in str(refused.value)


def test_another_model_than_the_asked_one_is_refused() -> None:
    request = run_request_for()
    built = expected_built(request)
    check_built(built, request)
    with pytest.raises(MismatchError, match="num_layers=4"):
        check_built(replace(built, num_layers=4), request)
