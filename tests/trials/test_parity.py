"""Every layout computes what a plain single-process GPT computes: losses, gradients, and what updates make of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.support.ranks import with_trainer
from tests.support.reference_gpt import Weights, reference_training
from tests.support.run_requests import GPT2, LLAMA, layout, run_request_for
from trials.contract import Layout, ModelShape, RunRequest
from trials.step import Trainer

pytestmark = pytest.mark.trainer

NUM_STEPS = 4
# Sums run in another order on every layout; fp32 carries 7 digits.
RELATIVE = 1e-5

LAYOUTS = [(tp, pp, dp) for tp in range(1, 5) for pp in range(1, 5) for dp in range(1, 5) if tp * pp * dp <= 4]


# Micro-batches on each replica of the 12 sequences: 4, 3, 2 and 3.
MICRO_BATCH_SIZES = {1: 3, 2: 2, 3: 2, 4: 1}


class Trained:
    """Results in memory that all ranks share, made before they are forked."""

    def __init__(self, shapes: dict[str, tuple[int, ...]]) -> None:
        nan = float("nan")
        self.losses = torch.full((NUM_STEPS,), nan).share_memory_()
        self.norms = torch.full((NUM_STEPS,), nan).share_memory_()
        self.gradients: Weights = {n: torch.full(shape, nan).share_memory_() for n, shape in shapes.items()}


def whole_shapes(model: ModelShape) -> dict[str, tuple[int, ...]]:
    """Names and whole shapes of all parameters, written out by hand."""
    h, f, e, a, k = (
        model.hidden_size,
        model.ffn_hidden_size * (2 if model.gated_ffn else 1),
        model.head_dim,
        model.num_heads,
        model.num_kv_heads,
    )
    shapes: dict[str, tuple[int, ...]] = {"embedding.tokens": (model.vocab_size, h), "final_norm.weight": (h,)}
    if model.position == "learned":
        shapes["embedding.positions"] = (model.max_seq_len, h)
    if not model.tied_embeddings:
        shapes["head.weight"] = (model.vocab_size, h)
    if model.norm == "layer":
        shapes["final_norm.bias"] = (h,)
    for prefix in (f"layers.{i}" for i in range(model.num_layers)):
        for norm in ("attention_norm", "mlp_norm"):
            shapes[f"{prefix}.{norm}.weight"] = (h,)
            if model.norm == "layer":
                shapes[f"{prefix}.{norm}.bias"] = (h,)
        rows = {"attention.project": (a + 2 * k) * e, "attention.output": h, "mlp.up": f, "mlp.down": h}
        columns = {"attention.project": h, "attention.output": a * e, "mlp.up": h, "mlp.down": model.ffn_hidden_size}
        for name, count in rows.items():
            shapes[f"{prefix}.{name}.weight"] = (count, columns[name])
            if model.biases:
                shapes[f"{prefix}.{name}.bias"] = (count,)
    return shapes


def train(request: RunRequest, run_dir: Path) -> Trained:
    """Gradients of the first batch, then losses and norms of NUM_STEPS updates, from forked ranks."""
    trained = Trained(whole_shapes(request.model))

    def body(trainer: Trainer) -> None:
        trainer.accumulate(0)
        if trainer.mesh.at.dp_rank == 0:
            for parameter in trainer.flat.parameters:
                placement = parameter.placement
                placement.scatter_(trained.gradients[placement.name], parameter.main_grad)
        for step in range(NUM_STEPS):
            result = trainer.step(step)
            if trainer.mesh.rank == 0:
                trained.losses[step], trained.norms[step] = result.loss, result.grad_norm

    with_trainer(request, run_dir, body)
    return trained


def reference(model: ModelShape, run_dir: Path) -> Trained:
    """The same from the plain model, which starts from the trainer's weights on one rank."""
    request = run_request_for(model)
    trained = Trained(whole_shapes(model))

    def body(trainer: Trainer) -> None:
        weights = {p.placement.name: p.detach().clone() for p in trainer.flat.parameters}
        batches = [trainer.source.global_batch(step) for step in range(NUM_STEPS)]
        losses, norms, gradients = reference_training(weights, batches, shape=model, training=request.training)
        trained.losses.copy_(torch.tensor(losses))
        trained.norms.copy_(torch.tensor(norms))
        for name, gradient in gradients.items():
            trained.gradients[name].copy_(gradient)

    with_trainer(request, run_dir, body)
    return trained


def assert_close(name: str, actual: Tensor, expected: Tensor, *, relative: float = RELATIVE) -> None:
    """The norm of the difference is small against the norm; NaN (never written) is not."""
    error = (torch.linalg.vector_norm(actual - expected) / torch.linalg.vector_norm(expected)).item()
    assert error < relative, f"{name}: relative error {error}"


def assert_same_training(actual: Trained, expected: Trained) -> None:
    assert actual.gradients.keys() == expected.gradients.keys()
    for name, gradient in expected.gradients.items():
        assert_close(name, actual.gradients[name], gradient)
    assert_close("losses", actual.losses, expected.losses)
    assert_close("norms", actual.norms, expected.norms)


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
