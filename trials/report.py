"""What a run leaves in its directory: progress lines, the report, failure files; and what it prints.

It decides form and place, not content: seconds and bytes come from `measure.py` and `profile.py`.
"""

from __future__ import annotations

import json
import platform
import socket
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from trials.collectives import Group
from trials.contract import (
    FAILURE_SCHEMA,
    PROGRESS_FILE,
    REPORT_FILE,
    REPORT_SCHEMA,
    Built,
    Progress,
    RankFailure,
    RankReport,
    ReportEnvironment,
    RunReport,
    RunRequest,
    decode,
    encode,
    failure_file,
    write_document,
)
from trials.failures import classify
from trials.measure import Recording, StepRecord
from trials.profile import PeakMemory
from trials.step import Trainer

MAX_TRACEBACK_CHARACTERS = 16_000


def remove_stale(run_dir: Path, *, rank: int) -> None:
    """Remove what an earlier run in this directory left. A rank removes only its own failure: none is lost."""
    names = [failure_file(rank), *([REPORT_FILE, PROGRESS_FILE] if rank == 0 else [])]
    for name in names:
        (run_dir / name).unlink(missing_ok=True)


class Console:
    """Rank 0's progress file and its lines on standard output; silent on all other ranks."""

    def __init__(self, run_dir: Path, *, request: RunRequest, rank: int) -> None:
        self._path = run_dir / PROGRESS_FILE
        self._request = request
        self._is_silent = rank != 0
        self._total = request.steps.warmup + request.steps.measured
        self._width = len(str(self._total))

    def started(self) -> None:
        """The first progress line: the ranks live, nothing has been trained yet."""
        self._progress(phase="startup", step=0, seconds=None, loss=None)

    def header(self, built: Built, *, device: torch.device, backend: str) -> None:
        """One line: model, parameters, layout."""
        model, layout, training = self._request.model, self._request.layout, self._request.training
        self._print(
            f"GPT with {built.num_layers} layers, hidden {model.hidden_size}, {model.num_heads} heads,"
            f" {built.num_parameters:,} parameters, {training.precision}"
            f" | tp {built.tp} x pp {built.pp} x dp {built.dp}, micro-batch {layout.micro_batch_size}"
            f" x {built.num_microbatches}, recompute {layout.recompute}"
            f" | {built.tokens_per_step:,} tokens a step | {device.type}, {backend}"
        )

    def step(self, record: StepRecord) -> None:
        """One finished step."""
        training = self._request.training
        tokens = training.global_batch_size * training.seq_len
        self._progress(
            phase="warmup" if record.is_warmup else "measure",
            step=record.number,
            seconds=record.seconds,
            loss=record.result.loss,
        )
        self._print(
            f"step {record.number:{self._width}d}/{self._total}  loss {record.result.loss:.4f}"
            f"  grad norm {record.result.grad_norm:.3f}  {record.seconds:.4f} s"
            f"  {tokens / record.seconds:,.0f} tokens/s"
            f"{'  (warm-up)' if record.is_warmup else ''}"
        )

    def finished(self, report: RunReport) -> None:
        """The last line."""
        fastest = min(report.step_seconds)
        peak = max(rank.peak_allocated_bytes for rank in report.ranks)
        self._print(
            f"{report.ended}: {len(report.step_seconds)} measured steps, fastest {fastest:.4f} s"
            f" ({report.built.tokens_per_step / fastest:,.0f} tokens/s), peak memory {peak / 2**20:,.1f} MiB a rank,"
            f" start-up {report.startup_seconds:.1f} s"
        )

    def _progress(self, *, phase: str, step: int, seconds: float | None, loss: float | None) -> None:
        if self._is_silent:
            return
        line = decode(
            Progress,
            {
                "unix_seconds": time.time(),
                "phase": phase,
                "step": step,
                "total_steps": self._total,
                "step_seconds": seconds,
                "loss": loss,
            },
        )
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(encode(line), allow_nan=False) + "\n")

    def _print(self, text: str) -> None:
        if not self._is_silent:
            print(text, flush=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Startup:
    """`startup_seconds` is process start until the first step, `setup_seconds` the part of it after imports."""

    startup_seconds: float
    setup_seconds: float


def rank_report(trainer: Trainer, recording: Recording, *, peak: PeakMemory) -> RankReport:
    """This rank's own figures."""
    at = trainer.mesh.at
    return RankReport(
        rank=trainer.mesh.rank,
        tp_rank=at.tp_rank,
        pp_rank=at.pp_rank,
        dp_rank=at.dp_rank,
        hostname=socket.gethostname(),
        device_name=device_name(trainer.device),
        num_layers=trainer.model.num_layers,
        num_parameters=trainer.flat.num_local_parameters,
        peak_allocated_bytes=peak.allocated_bytes,
        peak_reserved_bytes=peak.reserved_bytes,
        baseline_bytes=peak.baseline_bytes,
        breakdown_seconds=recording.breakdown_seconds,
    )


def gather_reports(mine: RankReport, *, world: Group, device: torch.device) -> tuple[RankReport, ...]:
    """All ranks' reports in rank order, on every rank; they travel as JSON."""
    text = json.dumps(encode(mine)).encode()
    lengths = world.all_gather(torch.tensor([len(text)], device=device)).flatten().tolist()
    padded = torch.zeros(max(lengths), dtype=torch.uint8, device=device)
    padded[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8).to(device)
    rows: list[Tensor] = list(world.all_gather(padded).cpu())
    texts = [bytes(row[:length].tolist()) for row, length in zip(rows, lengths, strict=True)]
    return tuple(decode(RankReport, json.loads(text)) for text in texts)


def run_report(
    request: RunRequest,
    recording: Recording,
    *,
    startup: Startup,
    built: Built,
    ranks: tuple[RankReport, ...],
    backend: str,
) -> RunReport:
    """The report. Losses and gradient norms are those of all steps in order, warm-up first."""
    return RunReport(
        schema=REPORT_SCHEMA,
        run_id=request.run_id,
        ended=recording.ended,
        warmup_step_seconds=recording.seconds(is_warmup=True),
        step_seconds=recording.seconds(is_warmup=False),
        losses=tuple(step.result.loss for step in recording.steps),
        grad_norms=tuple(step.result.grad_norm for step in recording.steps),
        startup_seconds=startup.startup_seconds,
        setup_seconds=startup.setup_seconds,
        built=built,
        ranks=ranks,
        environment=ReportEnvironment(
            torch_version=str(torch.__version__),
            python_version=platform.python_version(),
            backend=backend,
            threads_per_rank=request.resources.threads_per_rank,
        ),
    )


def device_name(device: torch.device) -> str:
    """The accelerator's or the processor's name."""
    if device.type != "cpu":
        module = torch.get_device_module(device)
        return str(module.get_device_name(device)) if hasattr(module, "get_device_name") else device.type
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def write_failure(run_dir: Path, error: BaseException, *, run_id: str, rank: int) -> RankFailure:
    """Write why this rank ends; returns what was written."""
    failure = RankFailure(
        schema=FAILURE_SCHEMA,
        run_id=run_id,
        rank=rank,
        kind=classify(error),
        message=str(error) or type(error).__name__,
        traceback="".join(traceback.format_exception(error))[-MAX_TRACEBACK_CHARACTERS:],
        unix_seconds=time.time(),
    )
    write_document(run_dir / failure_file(rank), failure)
    return failure
