"""Interleaved stages compute what a plain single-process GPT computes, however many chunks and micro-batches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.parity import Trained, assert_same_training, reference, train
from tests.support.ranks import with_trainer
from tests.support.run_requests import GPT2, LLAMA, layout, run_request_for
from trials.contract import Layout, ModelShape
from trials.step import Trainer

pytestmark = pytest.mark.trainer

# 9 layers do not divide over 4, 6 or 8 chunks.
DEEP_GPT2 = replace(GPT2, num_layers=9)
DEEP_LLAMA = replace(LLAMA, num_layers=9)


@pytest.fixture(scope="module")
def gpt2_reference(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return reference(DEEP_GPT2, tmp_path_factory.mktemp("gpt2"))


@pytest.fixture(scope="module")
def llama_reference(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return reference(DEEP_LLAMA, tmp_path_factory.mktemp("llama"))


# (tp, pp, dp), chunks a stage, micro-batch size of the 12 sequences, recompute.
CASES = [
    ((1, 2, 1), 2, 1, "none"),
    ((1, 2, 1), 3, 6, "none"),  # as many micro-batches as stages: the first stage only warms up
    ((1, 3, 1), 3, 2, "full"),
    ((1, 4, 1), 2, 3, "none"),
    ((2, 2, 1), 4, 3, "selective"),
    ((1, 2, 2), 2, 1, "full"),
]
MANY_RANKS = [((2, 2, 2), 3, 3, "none"), ((2, 4, 1), 2, 3, "none"), ((1, 4, 1), 2, 1, "full")]


def shape_of(case: tuple[tuple[int, int, int], int, int, str]) -> Layout:
    sizes, virtual_stages, micro_batch_size, recompute = case
    shape = layout(*sizes, micro_batch_size=micro_batch_size, virtual_stages=virtual_stages)
    return replace(shape, recompute=recompute)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gpt2_trains_alike_in_interleaved_stages(
    case: tuple[tuple[int, int, int], int, int, str], gpt2_reference: Trained, tmp_path: Path
) -> None:
    assert_same_training(train(run_request_for(DEEP_GPT2, shape_of(case)), tmp_path), gpt2_reference)


@pytest.mark.parametrize("case", CASES[1:5], ids=str)
def test_llama_trains_alike_in_interleaved_stages(
    case: tuple[tuple[int, int, int], int, int, str], llama_reference: Trained, tmp_path: Path
) -> None:
    assert_same_training(train(run_request_for(DEEP_LLAMA, shape_of(case)), tmp_path), llama_reference)


@pytest.mark.long
@pytest.mark.parametrize("case", MANY_RANKS, ids=str)
@pytest.mark.parametrize("model", [DEEP_GPT2, DEEP_LLAMA], ids=["gpt2", "llama"])
def test_many_ranks_train_alike_in_interleaved_stages(
    model: ModelShape, case: tuple[tuple[int, int, int], int, int, str], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    expected = request.getfixturevalue("gpt2_reference" if model is DEEP_GPT2 else "llama_reference")
    assert_same_training(train(run_request_for(model, shape_of(case)), tmp_path), expected)


@pytest.mark.long
@pytest.mark.parametrize(
    ("pp", "virtual_stages", "micro_batch_size"),
    [
        (pp, virtual_stages, micro_batch_size)
        for pp, virtual_stages in ((2, 2), (2, 3), (2, 4), (3, 2), (3, 3), (4, 2))
        for micro_batch_size in (1, 2, 3, 4, 6)
        if 12 // micro_batch_size % pp == 0
    ],
)
def test_every_depth_and_number_of_micro_batches_trains_alike(
    pp: int, virtual_stages: int, micro_batch_size: int, gpt2_reference: Trained, tmp_path: Path
) -> None:
    shape = layout(1, pp, 1, micro_batch_size=micro_batch_size, virtual_stages=virtual_stages)
    assert_same_training(train(run_request_for(DEEP_GPT2, shape), tmp_path), gpt2_reference)


def test_a_stage_holds_its_chunks_of_the_model(tmp_path: Path) -> None:
    # 9 layers in 4 chunks: 2, and one more for chunk 1: layers 0-1, 2-4, 5-6, 7-8. Stage 0 has chunks 0 and 2.
    def body(trainer: Trainer) -> None:
        names = {p.placement.name.split(".")[1] for p in trainer.flat.parameters if p.placement.name.startswith("lay")}
        assert sorted(map(int, names)) == ([0, 1, 5, 6] if trainer.mesh.is_first_stage else [2, 3, 4, 7, 8])
        assert trainer.model.num_layers == len(names)

    with_trainer(run_request_for(DEEP_GPT2, layout(1, 2, 1, virtual_stages=2)), tmp_path, body)
