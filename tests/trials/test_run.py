"""A run leaves a report, progress lines and printed lines; a failed one says why and ends with the right status."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.ranks import logs, run_ranks, run_request
from tests.support.run_requests import GPT2, LLAMA, layout, run_request_for
from trials.contract import (
    Built,
    Data,
    Layout,
    Progress,
    RankFailure,
    RunReport,
    RunRequest,
    decode,
    read_document,
    write_document,
)
from trials.run import main, run_rank

pytestmark = pytest.mark.trainer

# By hand, GPT2 of run_requests: a layer has 40 x (3 x 48) + 144 = 5,904 for queries, keys, values; 48 x 40 + 40 = 1,960
# for the output; 40 x 96 + 96 = 3,936 and 96 x 40 + 40 = 3,880 for the MLP; two norms 2 x 80 = 160: 15,840 in all.
# Five layers 79,200; tables 131 x 40 = 5,240 and 16 x 40 = 640; the final norm 80: 85,160.
GPT2_PARAMETERS = 85_160


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunReport, Path]:
    run_dir = tmp_path_factory.mktemp("run")
    (run_dir / "failure-rank-3.json").write_text("left by an earlier run")
    (run_dir / "report.json").write_text("left by an earlier run")
    (run_dir / "progress.jsonl").write_text("left by an earlier run\n")
    outcome = run_request(run_request_for(GPT2, layout(2, 2, 1, micro_batch_size=6)), run_dir, world_size=4)
    assert outcome.statuses == [0, 0, 0, 0], logs(run_dir)
    return outcome.report, run_dir


def test_the_report_says_what_was_built(report: tuple[RunReport, Path]) -> None:
    # 12 sequences of 16 tokens, 6 to a micro-batch.
    assert report[0].built == Built(
        num_layers=5, num_parameters=GPT2_PARAMETERS, tp=2, pp=2, dp=1, num_microbatches=2, tokens_per_step=192
    )


def test_the_report_holds_every_steps_raw_figures(report: tuple[RunReport, Path]) -> None:
    document = report[0]
    assert (document.run_id, document.ended) == ("run-1", "completed")
    assert len(document.warmup_step_seconds) == 1
    assert len(document.step_seconds) == 3
    assert len(document.losses) == len(document.grad_norms) == 4
    assert min(document.warmup_step_seconds + document.step_seconds + document.grad_norms) > 0
    # An untrained model gives each of 131 tokens about the same probability: ln 131 = 4.875.
    assert document.losses[0] == pytest.approx(4.875, abs=0.2)
    assert document.startup_seconds >= document.setup_seconds > 0
    assert document.environment.backend == "gloo"


def test_the_report_holds_every_ranks_place_and_share(report: tuple[RunReport, Path]) -> None:
    ranks = report[0].ranks
    # tp fastest, then pipeline; 5 layers over 2 stages: 3 and 2.
    assert [(r.rank, r.tp_rank, r.pp_rank, r.dp_rank, r.num_layers) for r in ranks] == [
        (0, 0, 0, 0, 3),
        (1, 1, 0, 0, 3),
        (2, 0, 1, 0, 2),
        (3, 1, 1, 0, 2),
    ]
    # First stage, one of two halves: queries, keys, values 2,952, output 960 + 40, MLP 1,968 and 1,920 + 40, norms 160:
    # 8,040 a layer. The table's 131 rows are cut into 66 and 65 (padded to 66): 2,640. Positions are whole: 640.
    assert [r.num_parameters for r in ranks[:2]] == [3 * 8_040 + 2_640 + 640] * 2
    assert [r.num_parameters for r in ranks[2:]] == [2 * 8_040 + 2_640 + 80] * 2
    for rank in ranks:
        assert rank.peak_allocated_bytes > 0
        assert rank.baseline_bytes > 0
        assert set(rank.breakdown_seconds) >= {
            "compute",
            "tp_communication",
            "pp_communication",
            "dp_communication",
            "optimizer",
        }
        assert rank.breakdown_seconds["compute"] > 0
        assert rank.breakdown_seconds["tp_communication"] > 0
        assert rank.breakdown_seconds["pp_communication"] > 0
        assert rank.breakdown_seconds["dp_communication"] == 0  # a single replica says nothing to itself


def test_progress_has_a_line_for_the_start_and_for_every_step(report: tuple[RunReport, Path]) -> None:
    lines = [decode(Progress, json.loads(line)) for line in (report[1] / "progress.jsonl").read_text().splitlines()]
    assert [(line.phase, line.step, line.total_steps) for line in lines] == [
        ("startup", 0, 4),
        ("warmup", 1, 4),
        ("measure", 2, 4),
        ("measure", 3, 4),
        ("measure", 4, 4),
    ]
    assert lines[0].loss is None
    assert [line.loss for line in lines[1:]] == list(report[0].losses)


def test_files_of_an_earlier_run_are_gone(report: tuple[RunReport, Path]) -> None:
    assert not (report[1] / "failure-rank-3.json").exists()


def test_rank_0_prints_a_header_a_line_for_each_step_and_the_end(report: tuple[RunReport, Path]) -> None:
    lines = (report[1] / "rank-0.log").read_text().splitlines()
    assert len(lines) == 6
    assert "85,160 parameters" in lines[0]
    assert "tp 2 x pp 2 x dp 1" in lines[0]
    for number, line in enumerate(lines[1:5], start=1):
        assert line.startswith(f"step {number}/4  loss ")
        assert "tokens/s" in line
    assert lines[5].startswith("completed: 3 measured steps")
    assert (report[1] / "rank-1.log").read_text() == ""


def test_the_loss_goes_down_on_the_bundled_corpus(tmp_path: Path) -> None:
    outcome = run_request(run_request_for(LLAMA, layout(1, 1, 2), measured=39), tmp_path, world_size=2)
    losses = outcome.report.losses
    # Frequent letters alone are worth about one nat; 40 steps learn them.
    assert sum(losses[-5:]) / 5 < losses[0] - 1.0


def test_peak_memory_holds_the_model_states_and_not_the_libraries(tmp_path: Path) -> None:
    # 256 x (4 x 256 + 2 x 1024) = 786,432 a layer, 4 layers and a table of 131 x 256: 3.2 M parameters; in fp32 each
    # has a weight, a gradient and two moments: 51 MB. Activations of 16 tokens are small; 64 MiB is a generous rest.
    model = replace(GPT2, num_layers=4, hidden_size=256, num_heads=8, num_kv_heads=8, head_dim=32, ffn_hidden_size=1024)
    outcome = run_request(run_request_for(model), tmp_path, world_size=1)
    (rank,) = outcome.report.ranks
    states_bytes = 16 * outcome.report.built.num_parameters
    assert states_bytes > 51_000_000
    assert states_bytes <= rank.peak_allocated_bytes <= states_bytes + 64 * 2**20


def test_hopelessly_slow_steps_end_the_run_after_three_of_them(tmp_path: Path) -> None:
    request = run_request_for(GPT2, layout(1, 1, 2), measured=10)
    request = replace(request, steps=replace(request.steps, abort_above_step_seconds=1e-9))
    outcome = run_request(request, tmp_path, world_size=2)
    assert outcome.statuses == [0, 0]
    assert outcome.report.ended == "aborted_slow"
    assert len(outcome.report.step_seconds) == 3


def test_steps_below_the_limit_run_to_the_end(tmp_path: Path) -> None:
    request = run_request_for(measured=5)
    request = replace(request, steps=replace(request.steps, abort_above_step_seconds=1e9))
    outcome = run_request(request, tmp_path, world_size=1)
    assert (outcome.report.ended, len(outcome.report.step_seconds)) == ("completed", 5)


def test_all_ranks_agree_that_the_loss_diverged(tmp_path: Path) -> None:
    request = run_request_for(GPT2, layout(1, 2, 1))
    request = replace(request, training=replace(request.training, learning_rate=1e30))
    outcome = run_request(request, tmp_path, world_size=2)
    assert outcome.statuses == [42, 42]
    assert [outcome.failure(rank).kind for rank in (0, 1)] == ["diverged", "diverged"]
    assert "learning_rate is 1e+30" in outcome.failure(0).message
    assert not (tmp_path / "report.json").exists()


@pytest.mark.parametrize("what", ["states", "activations"])
def test_running_out_of_the_memory_limit_is_told_as_such(what: str, tmp_path: Path) -> None:
    if what == "states":
        # 12 x 512^2 x 4 layers = 12.6 M parameters x 16 bytes = 201 MB
        model = replace(GPT2, num_layers=4, hidden_size=512, ffn_hidden_size=2048, num_heads=8, num_kv_heads=8)
        request = run_request_for(replace(model, head_dim=64))
    else:
        # 12 x 2048 tokens x 5 layers x (96 + 96 MLP + 144 + 48 attention + ...) x 4 bytes: over 190 MB
        request = run_request_for(replace(GPT2, max_seq_len=2048), layout(micro_batch_size=12))
        request = replace(request, training=replace(request.training, seq_len=2048))
    request = replace(request, resources=replace(request.resources, memory_limit_bytes=64 * 2**20))
    outcome = run_request(request, tmp_path, world_size=1)
    assert outcome.statuses == [40], logs(tmp_path)
    failure = outcome.failure(0)
    assert (failure.kind, failure.run_id) == ("out_of_memory", "run-1")
    assert "allocate" in failure.message
    assert "Traceback" in failure.traceback


def test_a_run_within_the_memory_limit_completes(tmp_path: Path) -> None:
    request = run_request_for()
    request = replace(request, resources=replace(request.resources, memory_limit_bytes=256 * 2**20))
    assert run_request(request, tmp_path, world_size=1).statuses == [0]


def with_layout(**changes: object) -> RunRequest:
    return run_request_for(GPT2, replace(layout(), **changes))


def with_training(**changes: object) -> RunRequest:
    request = run_request_for()
    return replace(request, training=replace(request.training, **changes))


def with_data(kind: str, path: str = "") -> RunRequest:
    return replace(run_request_for(), data=decode(Data, {"kind": kind, "path": path}))


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (with_layout(dp=2), "needs 2 ranks, and 1 were started"),
        (with_layout(zero_stage=1), "set zero_stage to 0, not 1"),
        (with_layout(virtual_stages=2), "virtual_stages 2 needs a pipeline, and pp is 1"),
        (with_layout(sequence_parallel=True), "set sequence_parallel to false"),
        (with_layout(micro_batch_size=5), "global_batch_size 12 is not divisible by micro_batch_size 5 x dp 1"),
        (with_layout(tp=0), "must be at least 1, and one is 0"),
        (with_training(precision="fp16"), "fp16 is not supported"),
        (with_training(seq_len=17), "seq_len 17 is longer than the model's max_seq_len 16"),
        (run_request_for(replace(GPT2, vocab_size=100)), "use vocab_size 122 or more"),
        (with_data("text", "/nowhere/at/all.txt"), "cannot be read"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_done_is_a_mismatch_in_one_sentence(request_: RunRequest, words: str, tmp_path: Path) -> None:
    outcome = run_request(request_, tmp_path, world_size=1)
    assert outcome.statuses == [41], logs(tmp_path)
    assert outcome.failure(0).kind == "mismatch"
    assert words in outcome.failure(0).message


def test_random_tokens_and_a_text_file_are_trained_on(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("Plain words, again and again. " * 20)
    for request in (with_data("synthetic"), with_data("text", str(text))):
        assert run_request(request, tmp_path / request.data.kind, world_size=1).statuses == [0]


def test_a_forked_rank_gives_the_losses_of_a_fresh_process_and_never_imports_the_compiler(tmp_path: Path) -> None:
    request = run_request_for(LLAMA, layout(1, 2, 1, micro_batch_size=6, recompute="full"))

    def body(rank: int) -> int:
        status = run_rank(
            request, rank=rank, world_size=2, local_rank=rank, run_dir=tmp_path, init_method=f"file://{tmp_path}/meet"
        )
        return 7 if {"torch._dynamo.convert_frame", "sympy"} & set(sys.modules) else status

    assert run_ranks(2, body, log_dir=tmp_path) == [0, 0], logs(tmp_path)
    forked = read_document(RunReport, tmp_path / "report.json")

    fresh_dir = tmp_path / "fresh"
    fresh_dir.mkdir()
    write_document(fresh_dir / "request.json", request)
    assert start_fresh(fresh_dir, world_size=2) == [0, 0]
    assert read_document(RunReport, fresh_dir / "report.json").losses == forked.losses


def start_fresh(run_dir: Path, *, world_size: int) -> list[int]:
    """Start ranks as torchrun would; their exit statuses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    base = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(world_size)}
    command = [sys.executable, "-m", "trials.run", str(run_dir / "request.json")]
    root = Path(__file__).parents[2]
    ranks = [
        subprocess.Popen(command, env={**base, "RANK": str(r), "LOCAL_RANK": str(r)}, cwd=root)
        for r in range(world_size)
    ]
    try:
        return [rank.wait(timeout=60) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read"),
        ("{", "not JSON"),
        ('{"schema": "autotuner.run-request/1"}', "is missing"),
    ],
)
def test_a_request_that_cannot_be_read_is_a_launch_error(content: str | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "request.json"
    if content is not None:
        path.write_text(content)
    assert main([str(path)]) == 1
    failure = read_document(RankFailure, tmp_path / "failure-rank-0.json")
    assert failure.kind == "launch_error"
    assert words in failure.message


def test_a_request_of_another_version_is_a_launch_error(tmp_path: Path) -> None:
    write_document(tmp_path / "request.json", replace(run_request_for(), schema="autotuner.run-request/9"))
    assert main([str(tmp_path / "request.json")]) == 1
    assert "autotuner.run-request/1" in read_document(RankFailure, tmp_path / "failure-rank-0.json").message


def test_missing_variables_are_a_launch_error_that_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    write_document(tmp_path / "request.json", run_request_for())
    assert main([str(tmp_path / "request.json"), "--run-dir", str(tmp_path / "out")]) == 1
    failure = read_document(RankFailure, tmp_path / "out" / "failure-rank-0.json")
    assert "RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT are not set" in failure.message


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [layout(), layout(2, 1, 1), layout(1, 2, 1), layout(1, 1, 2), layout(2, 2, 1)])
def test_an_accelerator_gives_the_losses_of_the_cpu(shape: Layout, tmp_path: Path) -> None:
    import torch  # noqa: PLC0415 - only this test depends on the machine

    if torch.accelerator.device_count() < shape.world_size:
        pytest.skip(f"needs {shape.world_size} accelerators")
    request = run_request_for(LLAMA, shape)
    request = replace(request, resources=replace(request.resources, device="accelerator"))
    write_document(tmp_path / "request.json", request)
    assert start_fresh(tmp_path, world_size=shape.world_size) == [0] * shape.world_size
    losses = read_document(RunReport, tmp_path / "report.json").losses
    # The accelerator draws other first weights, so only the course of the loss is compared: ln 131, then down.
    assert losses[0] == pytest.approx(4.875, abs=0.2)
    assert losses[-1] < losses[0]
