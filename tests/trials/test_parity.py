"""Every layout computes what a plain single-process GPT computes: losses, gradients, and what updates make of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.parity import Trained, assert_close, assert_same_training, reference, train
from tests.support.run_requests import GPT2, LLAMA, layout, run_request_for
from trials.contract import Layout, ModelShape

pytestmark = pytest.mark.trainer

LAYOUTS = [(tp, pp, dp) for tp in range(1, 5) for pp in range(1, 5) for dp in range(1, 5) if tp * pp * dp <= 4]


# Micro-batches on each replica of the 12 sequences: 4, 3, 2 and 3.
MICRO_BATCH_SIZES = {1: 3, 2: 2, 3: 2, 4: 1}


@pytest.fixture(scope="module")
def gpt2_reference(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return reference(GPT2, tmp_path_factory.mktemp("gpt2"))


@pytest.fixture(scope="module")
def llama_reference(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return reference(LLAMA, tmp_path_factory.mktemp("llama"))


@pytest.mark.parametrize(("tp", "pp", "dp"), LAYOUTS)
def test_gpt2_trains_alike_on_every_layout(tp: int, pp: int, dp: int, gpt2_reference: Trained, tmp_path: Path) -> None:
    assert_same_training(
        train(run_request_for(GPT2, layout(tp, pp, dp, micro_batch_size=MICRO_BATCH_SIZES[dp])), tmp_path),
        gpt2_reference,
    )


# 2 key and value heads: tp 2 gives each rank one, tp 4 makes two ranks share each, and tp 3 is not legal.
@pytest.mark.parametrize(("tp", "pp", "dp"), [sizes for sizes in LAYOUTS if sizes[0] != 3])
def test_llama_trains_alike_on_every_layout(
    tp: int, pp: int, dp: int, llama_reference: Trained, tmp_path: Path
) -> None:
    assert_same_training(
        train(run_request_for(LLAMA, layout(tp, pp, dp, micro_batch_size=MICRO_BATCH_SIZES[dp])), tmp_path),
        llama_reference,
    )


@pytest.mark.parametrize("recompute", ["selective", "full"])
@pytest.mark.parametrize("model", [GPT2, LLAMA], ids=["gpt2", "llama"])
def test_recomputing_changes_nothing(
    model: ModelShape, recompute: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    expected = request.getfixturevalue("gpt2_reference" if model is GPT2 else "llama_reference")
    shape = replace(layout(2, 2, 1, micro_batch_size=6), recompute=recompute)
    assert_same_training(train(run_request_for(model, shape), tmp_path), expected)


@pytest.mark.parametrize(
    "shape",
    [layout(1, 1, 1, micro_batch_size=12), layout(2, 1, 2, micro_batch_size=3), layout(1, 4, 1, micro_batch_size=6)],
    ids=["one micro-batch", "tp and dp", "fewer micro-batches than stages"],
)
def test_the_micro_batch_size_changes_nothing(shape: Layout, gpt2_reference: Trained, tmp_path: Path) -> None:
    assert_same_training(train(run_request_for(GPT2, shape), tmp_path), gpt2_reference)


def test_one_kv_head_shared_by_all_ranks_trains_alike(tmp_path: Path) -> None:
    model = replace(GPT2, num_kv_heads=1)  # with biases, whose key and value parts are shared as well
    (tmp_path / "plain").mkdir()
    expected = reference(model, tmp_path / "plain")
    assert_same_training(train(run_request_for(model, layout(4, 1, 1, micro_batch_size=6)), tmp_path), expected)


def test_a_model_without_positions_trains_alike(tmp_path: Path) -> None:
    model = replace(LLAMA, position="none", tied_embeddings=True)
    (tmp_path / "plain").mkdir()
    expected = reference(model, tmp_path / "plain")
    assert_same_training(train(run_request_for(model, layout(2, 2, 1, micro_batch_size=3)), tmp_path), expected)


def test_bf16_stays_near_fp32_on_any_layout(llama_reference: Trained, tmp_path: Path) -> None:
    # bf16 carries 8 bits: a product is off by up to 2^-9 = 0.2 %; the sums of a tiny model's few terms average little
    # of it away, so losses agree to 1 % and gradients to 5 % of their norm.
    request = run_request_for(LLAMA, layout(2, 2, 1, micro_batch_size=3))
    trained = train(replace(request, training=replace(request.training, precision="bf16")), tmp_path)
    assert_close("losses", trained.losses, llama_reference.losses, relative=0.01)
    for name, gradient in llama_reference.gradients.items():
        assert_close(name, trained.gradients[name], gradient, relative=0.05)
