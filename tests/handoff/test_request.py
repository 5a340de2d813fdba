"""The document that the trainer is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotuner.domain.errors import InvalidInput
from autotuner.domain.model import MoeSpec
from autotuner.domain.parallel import ParallelConfig
from autotuner.handoff.request import build_request, export_request, request_text, write_request
from tests.support.launching import CONFIG, tiny_job
from trials.contract import RunRequest, read_document


def request(job=None, config=CONFIG) -> RunRequest:
    return build_request(
        job or tiny_job(),
        config,
        run_id="r1",
        steps=7,
        data_kind="bundled",
        abort_above_step_seconds=1.5,
        threads_per_rank=3,
    )


def test_every_figure_of_job_and_layout_is_in_the_request() -> None:
    got = request()

    assert (got.run_id, got.steps.warmup, got.steps.measured, got.steps.abort_above_step_seconds) == ("r1", 2, 7, 1.5)
    assert (got.layout.tp, got.layout.pp, got.layout.dp, got.layout.micro_batch_size) == (1, 2, 1, 2)
    assert (got.model.num_layers, got.model.hidden_size, got.model.vocab_size) == (2, 32, 256)
    assert (got.training.seq_len, got.training.global_batch_size, got.training.seed) == (16, 4, 1)
    assert (got.resources.device, got.resources.memory_limit_bytes, got.resources.threads_per_rank) == ("cpu", 2**30, 3)


def test_what_is_written_is_what_the_trainer_reads(tmp_path: Path) -> None:
    path = write_request(request(), folder=tmp_path)

    assert path == tmp_path / "request.json"
    assert read_document(RunRequest, path) == request()
    assert path.read_text() == request_text(request())


def test_an_exported_run_may_use_all_memory_and_ends_when_its_steps_are_done() -> None:
    got = export_request(tiny_job(), CONFIG, run_id="r1", steps=100, threads_per_rank=1)

    assert got.resources.memory_limit_bytes is None
    assert got.steps.abort_above_step_seconds is None
    assert got.steps.measured == 100


@pytest.mark.parametrize(
    ("config", "field"),
    [(ParallelConfig(cp=2), "cp"), (ParallelConfig(ep=4), "ep")],
)
def test_axes_the_trainer_has_no_word_for_are_refused(config: ParallelConfig, field: str) -> None:
    with pytest.raises(InvalidInput, match=f"use {field} 1") as error:
        request(config=config)
    assert error.value.field == field


def test_fp8_and_experts_are_refused() -> None:
    job = tiny_job()
    fp8 = job.model_copy(update={"workload": job.workload.model_copy(update={"precision": "fp8"})})
    moe = MoeSpec(num_experts=8, experts_per_token=2, expert_ffn_hidden_size=64)
    experts = job.model_copy(update={"model": job.model.model_copy(update={"moe": moe})})

    with pytest.raises(InvalidInput, match="fp8 can be estimated"):
        request(fp8)
    with pytest.raises(InvalidInput, match="8 experts"):
        request(experts)
