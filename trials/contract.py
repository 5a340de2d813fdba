"""What service and trainer say to each other: one JSON file in, JSON files out.

The trainer reads a `RunRequest` and writes into a run directory:

* `progress.jsonl`         one line a step, by rank 0 (liveness, and what a page shows while it runs)
* `report.json`            a `RunReport`, by rank 0 at the end: raw seconds and bytes, nothing derived
* `failure-rank-K.json`    a `RankFailure`, by a rank that knows why it ends

Everything is written to a temporary name and renamed, so a reader never sees half a document.  Readers limit the size
they accept and refuse unknown fields and wrong types: a typo must not silently mean "default".  Standard library only.
"""

from __future__ import annotations

import json
import math
import os
import types
import typing
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

REQUEST_SCHEMA = "autotuner.run-request/1"
REPORT_SCHEMA = "autotuner.run-report/1"
FAILURE_SCHEMA = "autotuner.rank-failure/1"

REQUEST_FILE = "request.json"
REPORT_FILE = "report.json"
PROGRESS_FILE = "progress.jsonl"
MAX_DOCUMENT_BYTES = 32 * 1024 * 1024

# A rank that fails in a known way ends with one of these, so that the kind survives a lost failure file.
EXIT_OUT_OF_MEMORY = 40
EXIT_MISMATCH = 41
EXIT_DIVERGED = 42

Json = dict[str, Any]
T = TypeVar("T")


class ContractError(ValueError):
    """A document that is not what the contract says; the message holds the path of the offending field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Dimensions of the decoder; words as in the service's ModelSpec."""

    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_hidden_size: int
    gated_ffn: bool
    vocab_size: int
    max_seq_len: int
    tied_embeddings: bool
    norm: Literal["layer", "rms"]
    position: Literal["learned", "rope", "none"]
    biases: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """tp x pp x dp ranks (tp fastest, then dp, then pp) and what changes memory and time only."""

    tp: int
    pp: int
    dp: int
    virtual_stages: int
    micro_batch_size: int
    sequence_parallel: bool
    zero_stage: int
    recompute: Literal["none", "selective", "full"]

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return self.tp * self.pp * self.dp


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Batch, precision and AdamW. `clip_norm` 0 means no clipping."""

    seq_len: int
    global_batch_size: int
    precision: Literal["fp32", "bf16", "fp16"]
    learning_rate: float
    weight_decay: float
    beta1: float
    beta2: float
    epsilon: float
    clip_norm: float
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """`bundled` is the corpus that comes with the trainer, `synthetic` random tokens, `text` a UTF-8 file at `path`."""

    kind: Literal["bundled", "synthetic", "text"]
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Warm-up steps are run and not counted. A run whose steps are surely slower than the limit ends early."""

    warmup: int
    measured: int
    abort_above_step_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a rank may use. `memory_limit_bytes` is a device's memory: enforced on CPU, where no device does it."""

    device: Literal["cpu", "accelerator"]
    memory_limit_bytes: int | None
    threads_per_rank: int
    collective_timeout_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """Everything the trainer is told; there are no command-line flags beside it."""

    schema: str
    run_id: str
    model: ModelShape
    layout: Layout
    training: Training
    data: Data
    steps: Steps
    resources: Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport:
    """One rank's own figures. `baseline_bytes` (interpreter and libraries) is not in the peaks."""

    rank: int
    tp_rank: int
    pp_rank: int
    dp_rank: int
    hostname: str
    device_name: str
    num_layers: int
    num_parameters: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    baseline_bytes: int
    breakdown_seconds: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What was really built: checked against the request, so that no other model is measured by mistake.

    `num_parameters` counts each parameter of the model once, however many ranks hold a copy.
    """

    num_layers: int
    num_parameters: int
    tp: int
    pp: int
    dp: int
    num_microbatches: int
    tokens_per_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportEnvironment:
    """Where it ran."""

    torch_version: str
    python_version: str
    backend: str
    threads_per_rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """Raw results. `ended` is "completed", or "aborted_slow" when `abort_above_step_seconds` ended it.

    `startup_seconds` is process start until the first step, `setup_seconds` the part of it after imports.
    """

    schema: str
    run_id: str
    ended: Literal["completed", "aborted_slow"]
    warmup_step_seconds: tuple[float, ...]
    step_seconds: tuple[float, ...]
    losses: tuple[float, ...]
    grad_norms: tuple[float, ...]
    startup_seconds: float
    setup_seconds: float
    built: Built
    ranks: tuple[RankReport, ...]
    environment: ReportEnvironment


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFailure:
    """Why a rank ended. `unix_seconds` orders the failures of one run: the first one is the cause."""

    schema: str
    run_id: str
    rank: int
    kind: Literal["out_of_memory", "crash", "diverged", "mismatch", "launch_error"]
    message: str
    traceback: str
    unix_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One line of `progress.jsonl`. Before the first step `step` is 0 and `phase` is "startup"."""

    unix_seconds: float
    phase: Literal["startup", "warmup", "measure"]
    step: int
    total_steps: int
    step_seconds: float | None
    loss: float | None


def failure_file(rank: int) -> str:
    """Name of a rank's failure file in the run directory."""
    return f"failure-rank-{rank}.json"


def log_file(rank: int) -> str:
    """Name of a rank's log in the run directory."""
    return f"rank-{rank}.log"


def encode(document: Any) -> Json:
    """A contract dataclass as plain JSON types."""
    return asdict(document)


def decode(kind: type[T], data: Any, *, path: str = "$") -> T:
    """A JSON object as a contract dataclass. Raises ContractError with the path of what is wrong."""
    if not isinstance(data, dict):
        raise ContractError(f"{path}: expected an object, got {type(data).__name__}")
    hints = typing.get_type_hints(kind)
    names = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    if unknown := sorted(set(data) - set(names)):
        raise ContractError(f"{path}: unknown field {unknown[0]!r}; known are {', '.join(names)}")
    if missing := [name for name in names if name not in data]:
        raise ContractError(f"{path}: field {missing[0]!r} is missing")
    return kind(**{name: _decode_value(hints[name], data[name], f"{path}.{name}") for name in names})


def _decode_value(hint: Any, value: Any, path: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if is_dataclass(hint):
        return decode(typing.cast("type[Any]", hint), value, path=path)
    if origin in (Union, types.UnionType):
        return None if value is None else _decode_value(next(a for a in args if a is not type(None)), value, path)
    if origin is Literal:
        if value not in args:
            raise ContractError(f"{path}: expected one of {', '.join(map(str, args))}, got {value!r}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ContractError(f"{path}: expected a list, got {type(value).__name__}")
        return tuple(_decode_value(args[0], item, f"{path}[{i}]") for i, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise ContractError(f"{path}: expected an object, got {type(value).__name__}")
        return {str(k): _decode_value(args[1], v, f"{path}.{k}") for k, v in value.items()}
    return _decode_scalar(hint, value, path)


def _decode_scalar(hint: Any, value: Any, path: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not hint:
        raise ContractError(f"{path}: expected {hint.__name__}, got {value!r}")
    if hint is float and not math.isfinite(value):
        raise ContractError(f"{path}: {value} is not a finite number")
    return value


def write_document(path: Path, document: Any) -> None:
    """Write a contract dataclass so that a reader sees all of it or nothing."""
    text = json.dumps(encode(document), allow_nan=False, indent=1, sort_keys=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def read_document(kind: type[T], path: Path) -> T:
    """Read a contract dataclass. Raises FileNotFoundError, or ContractError for anything that is not one."""
    size = path.stat().st_size
    if size > MAX_DOCUMENT_BYTES:
        raise ContractError(f"{path.name}: {size} bytes, more than the {MAX_DOCUMENT_BYTES} that are read")
    try:
        data = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_constant)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ContractError(f"{path.name}: not JSON: {error}") from None
    return decode(kind, data)


def _no_constant(text: str) -> float:
    raise ContractError(f"{text} is not a number in JSON")
