"""Puts a rank's training together in the order that the parts depend on each other, and counts what was built."""

from __future__ import annotations

import torch

from trials.context import BuildContext
from trials.contract import Built, RunRequest
from trials.data import BatchSource, load_text
from trials.flat import FlatParameters
from trials.gradients import GradientSync
from trials.mesh import ParallelMesh
from trials.model import StageModel
from trials.optimizer import AdamW
from trials.pipeline.p2p import Channel
from trials.step import Trainer
from trials.stopwatch import Stopwatch

COMPUTE_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def build_trainer(request: RunRequest, *, mesh: ParallelMesh, device: torch.device, stopwatch: Stopwatch) -> Trainer:
    """Build this rank's stage with its first values. The request must have been checked."""
    layout, training = request.layout, request.training
    dtype = COMPUTE_TYPES[training.precision]
    context = BuildContext(shape=request.model, mesh=mesh, device=device, dtype=dtype, recompute=layout.recompute)
    model = StageModel(context, virtual_stages=layout.virtual_stages)
    flat = FlatParameters(model.sharded_parameters(), dtype=dtype, device=device)
    flat.draw(seed=training.seed)
    tied_ends = request.model.tied_embeddings and layout.pp > 1
    return Trainer(
        request=request,
        mesh=mesh,
        device=device,
        stopwatch=stopwatch,
        model=model,
        flat=flat,
        channel=Channel(
            mesh,
            shape=(layout.micro_batch_size, training.seq_len, request.model.hidden_size),
            dtype=dtype,
            device=device,
        ),
        source=build_source(request, mesh=mesh, device=device),
        sync=GradientSync(flat, mesh=mesh, shared_table=model.shared_table if tied_ends else None),
        optimizer=AdamW(flat, training=training),
    )


def build_source(request: RunRequest, *, mesh: ParallelMesh, device: torch.device) -> BatchSource:
    """The batches of this rank's replica."""
    training = request.training
    return BatchSource(
        text=load_text(request.data, vocab_size=request.model.vocab_size, seq_len=training.seq_len),
        vocab_size=request.model.vocab_size,
        seq_len=training.seq_len,
        global_batch_size=training.global_batch_size,
        micro_batch_size=request.layout.micro_batch_size,
        dp=mesh.dp.size,
        dp_rank=mesh.dp.rank,
        seed=training.seed,
        device=device,
    )


def count_built(trainer: Trainer) -> Built:
    """Add up what all ranks hold, each thing once. Collective: every rank must call it."""
    mesh, batches = trainer.mesh, trainer.source.batches(0)
    one_replica, one_slice = int(mesh.at.dp_rank == 0), int(mesh.at.tp_rank == 0)
    tokens = sum(part.numel() for part in batches.tokens)
    counts = torch.tensor(
        [
            trainer.model.num_layers * one_replica * one_slice,
            sum(p.placement.counted_elements for p in trainer.flat.parameters) * one_replica,
            tokens * one_slice * int(mesh.is_first_stage),
        ],
        device=trainer.device,
        dtype=torch.int64,
    )
    num_layers, num_parameters, tokens_per_step = mesh.world.all_reduce_(counts).tolist()
    return Built(
        num_layers=num_layers,
        num_parameters=num_parameters,
        tp=mesh.tp.size,
        pp=mesh.pp.size,
        dp=mesh.dp.size,
        num_microbatches=len(batches.tokens),
        tokens_per_step=tokens_per_step,
    )
