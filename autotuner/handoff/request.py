"""A job and a layout as the document that the bundled trainer reads.

Decides which of the service's words become which of the trainer's, and refuses what the trainer's contract has no words
for.  Whether a layout is legal was decided before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

from autotuner.domain.errors import InvalidInput
from autotuner.domain.job import TuningJob
from autotuner.domain.model import ModelSpec
from autotuner.domain.parallel import ParallelConfig
from autotuner.domain.workload import Precision
from trials.contract import (
    REQUEST_FILE,
    REQUEST_SCHEMA,
    Data,
    Layout,
    ModelShape,
    Resources,
    RunRequest,
    Steps,
    Training,
    encode,
    write_document,
)

DataKind = Literal["bundled", "synthetic"]

_EXPORT_TIMEOUT_SECONDS = 600.0  # what torch.distributed itself waits for NCCL

_PRECISIONS: Final[Mapping[Precision, Literal["fp32", "bf16", "fp16"]]] = {
    "fp32": "fp32",
    "bf16": "bf16",
    "fp16": "fp16",
}


def build_request(
    job: TuningJob,
    config: ParallelConfig,
    *,
    run_id: str,
    steps: int,
    data_kind: DataKind,
    abort_above_step_seconds: float | None,
    threads_per_rank: int,
) -> RunRequest:
    """The request of one run: `steps` are measured, after the job's warm-up steps.

    Raises InvalidInput for what the trainer cannot be asked: a mixture of experts, fp8, context or expert parallelism.
    """
    device = job.cluster.device
    # Ranks start one after the other on a busy machine, so a collective may wait as long as a whole start-up; a hang
    # is found earlier by the run's own deadlines.
    patience = max(job.budget.trial_startup_seconds, job.budget.trial_no_progress_seconds)
    return RunRequest(
        schema=REQUEST_SCHEMA,
        run_id=run_id,
        model=_model(job.model),
        layout=_layout(config),
        training=_training(job),
        data=Data(kind=data_kind, path=""),
        steps=Steps(warmup=job.measure.warmup_steps, measured=steps, abort_above_step_seconds=abort_above_step_seconds),
        resources=Resources(
            device=device.kind,
            memory_limit_bytes=device.memory_bytes,
            threads_per_rank=threads_per_rank,
            collective_timeout_seconds=patience,
        ),
    )


def export_request(
    job: TuningJob, config: ParallelConfig, *, run_id: str, steps: int, threads_per_rank: int
) -> RunRequest:
    """The request of a run outside the tuner: no limit on memory but the machine's, no early end, patient collectives.

    Raises InvalidInput like `build_request`.
    """
    request = build_request(
        job,
        config,
        run_id=run_id,
        steps=steps,
        data_kind="bundled",
        abort_above_step_seconds=None,
        threads_per_rank=threads_per_rank,
    )
    resources = replace(request.resources, memory_limit_bytes=None, collective_timeout_seconds=_EXPORT_TIMEOUT_SECONDS)
    return replace(request, resources=resources)


def request_text(request: RunRequest) -> str:
    """The request as it stands in its file."""
    return json.dumps(encode(request), allow_nan=False, indent=1, sort_keys=True) + "\n"


def write_request(request: RunRequest, *, folder: Path) -> Path:
    """Write the request into a run's folder, all of it or nothing. Raises OSError."""
    path = folder / REQUEST_FILE
    write_document(path, request)
    return path


def _model(model: ModelSpec) -> ModelShape:
    if model.moe is not None:
        raise InvalidInput(
            f"model {model.name!r} is a mixture of {model.moe.num_experts} experts, which the bundled trainer cannot"
            " run; estimate it instead",
            field="model.moe",
        )
    return ModelShape(
        num_layers=model.num_layers,
        hidden_size=model.hidden_size,
        num_heads=model.num_heads,
        num_kv_heads=model.num_kv_heads,
        head_dim=model.head_dim,
        ffn_hidden_size=model.ffn_hidden_size,
        gated_ffn=model.gated_ffn,
        vocab_size=model.vocab_size,
        max_seq_len=model.max_seq_len,
        tied_embeddings=model.tied_embeddings,
        norm=model.norm,
        position=model.position,
        biases=model.biases,
    )


def _layout(config: ParallelConfig) -> Layout:
    for name, size in (("cp", config.cp), ("ep", config.ep)):
        if size > 1:
            raise InvalidInput(f"{name} {size} cannot be run by the bundled trainer; use {name} 1", field=name)
    return Layout(
        tp=config.tp,
        pp=config.pp,
        dp=config.dp,
        virtual_stages=config.virtual_stages,
        micro_batch_size=config.micro_batch_size,
        sequence_parallel=config.sequence_parallel,
        zero_stage=config.zero_stage,
        recompute=config.recompute,
    )


def _training(job: TuningJob) -> Training:
    workload, optimizer = job.workload, job.workload.optimizer
    precision = _PRECISIONS.get(workload.precision)
    if precision is None:
        raise InvalidInput(
            f"precision {workload.precision} can be estimated and not run; use {', '.join(_PRECISIONS)}",
            field="workload.precision",
        )
    return Training(
        seq_len=workload.seq_len,
        global_batch_size=workload.global_batch_size,
        precision=precision,
        learning_rate=optimizer.learning_rate,
        weight_decay=optimizer.weight_decay,
        beta1=optimizer.beta1,
        beta2=optimizer.beta2,
        epsilon=optimizer.epsilon,
        clip_norm=optimizer.clip_norm,
        seed=job.seed,
    )
