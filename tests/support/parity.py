"""Trains a request on forked ranks and on the plain model, and compares what comes out of both.

Compared are the first batch's gradients, every step's loss and gradient norm, and the weights after the last step.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from tests.support.ranks import with_trainer
from tests.support.reference_gpt import Weights, reference_training
from tests.support.run_requests import run_request_for
from trials.contract import ModelShape, RunRequest
from trials.step import Trainer

NUM_STEPS = 4
# Sums run in another order on every layout; fp32 carries 7 digits.
RELATIVE = 1e-5


class Trained:
    """Results in memory that all ranks share, made before they are forked."""

    def __init__(self, shapes: dict[str, tuple[int, ...]]) -> None:
        nan = float("nan")
        self.losses = torch.full((NUM_STEPS,), nan).share_memory_()
        self.norms = torch.full((NUM_STEPS,), nan).share_memory_()
        self.gradients: Weights = {n: torch.full(shape, nan).share_memory_() for n, shape in shapes.items()}
        self.weights: Weights = {n: torch.full(shape, nan).share_memory_() for n, shape in shapes.items()}


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
        if trainer.mesh.at.dp_rank == 0:
            for parameter in trainer.flat.parameters:
                placement = parameter.placement
                placement.scatter_(trained.weights[placement.name], parameter.detach())

    with_trainer(request, run_dir, body)
    return trained


def reference(model: ModelShape, run_dir: Path) -> Trained:
    """The same from the plain model, which starts from the trainer's weights on one rank."""
    request = run_request_for(model)
    trained = Trained(whole_shapes(model))

    def body(trainer: Trainer) -> None:
        weights = {p.placement.name: p.detach().clone() for p in trainer.flat.parameters}
        batches = [trainer.source.global_batch(step) for step in range(NUM_STEPS)]
        losses, norms, gradients, last = reference_training(weights, batches, shape=model, training=request.training)
        trained.losses.copy_(torch.tensor(losses))
        trained.norms.copy_(torch.tensor(norms))
        for name, gradient in gradients.items():
            trained.gradients[name].copy_(gradient)
            trained.weights[name].copy_(last[name])

    with_trainer(request, run_dir, body)
    return trained


def assert_close(name: str, actual: Tensor, expected: Tensor, *, relative: float = RELATIVE) -> None:
    """The norm of the difference is small against the norm; NaN (never written) is not."""
    error = (torch.linalg.vector_norm(actual - expected) / torch.linalg.vector_norm(expected)).item()
    assert error < relative, f"{name}: relative error {error}"


def assert_same_training(actual: Trained, expected: Trained) -> None:
    assert actual.gradients.keys() == expected.gradients.keys()
    for name, gradient in expected.gradients.items():
        assert_close(f"gradient of {name}", actual.gradients[name], gradient)
    for name, weight in expected.weights.items():
        assert_close(name, actual.weights[name], weight)
    assert_close("losses", actual.losses, expected.losses)
    assert_close("norms", actual.norms, expected.norms)
