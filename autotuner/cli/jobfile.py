"""Reads a job file (YAML or JSON) into a `JobRequest`; every mistake in it becomes one clear sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from autotuner.domain.errors import InvalidInput
from autotuner.domain.job import JobRequest
from autotuner.domain.validation import one_sentence

MAX_FILE_BYTES = 1_000_000


def read_job_file(path: Path) -> JobRequest:
    """The job in a file. Raises InvalidInput: no such file, no YAML, unknown or wrong fields."""
    document = _load(path)
    if not isinstance(document, dict):
        raise InvalidInput(f"{path}: a job file holds a mapping (model, workload, cluster), not {_kind(document)}")
    try:
        return JobRequest.model_validate(document)
    except ValidationError as error:
        raise InvalidInput(f"{path}: {one_sentence(error)}") from None


def _load(path: Path) -> Any:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InvalidInput(f"{path}: larger than the {MAX_FILE_BYTES} bytes that a job file may have")
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InvalidInput(f"{path}: not a text file") from None
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror}") from None
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or str(error) or type(error).__name__
        raise InvalidInput(f"{path}: not YAML{where}: {problem}") from None


def _kind(document: Any) -> str:
    names = {"NoneType": "nothing", "list": "a list", "str": "a text"}
    return names.get(type(document).__name__, type(document).__name__)
