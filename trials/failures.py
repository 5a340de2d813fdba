"""Why a rank ends, as a kind the supervisor understands, and how an exception is turned into one.

It decides kind and exit code; writing the failure file is `report.py`'s, reacting to it the supervisor's business.
"""

from __future__ import annotations

from typing import Literal

import torch

from trials.contract import EXIT_DIVERGED, EXIT_MISMATCH, EXIT_OUT_OF_MEMORY, ContractError

Kind = Literal["out_of_memory", "crash", "diverged", "mismatch", "launch_error"]

EXIT_OTHER = 1
EXIT_CODES: dict[Kind, int] = {
    "out_of_memory": EXIT_OUT_OF_MEMORY,
    "mismatch": EXIT_MISMATCH,
    "diverged": EXIT_DIVERGED,
    "crash": EXIT_OTHER,
    "launch_error": EXIT_OTHER,
}

# Texts of allocation failures that do not come as an OutOfMemoryError. torch's CPU allocator raises a plain
# RuntimeError; NCCL and cuBLAS report memory they could not get for their own buffers under their own names.
_OUT_OF_MEMORY_TEXTS = (
    "can't allocate memory",
    "cannot allocate memory",
    "defaultcpuallocator",
    "out of memory",
    "std::bad_alloc",
    "cublas_status_alloc_failed",
    "cudnn_status_alloc_failed",
    "failed to cuda calloc",
    "failed to cuda malloc",
    "cuda error: memory allocation",
)


class TrialError(Exception):
    """An end that the trainer itself decided on; `kind` says which."""

    kind: Kind = "crash"


class MismatchError(TrialError):
    """What was asked for cannot be built here, or something else was built."""

    kind: Kind = "mismatch"


class DivergedError(TrialError):
    """The loss or the gradient norm stopped being a number."""

    kind: Kind = "diverged"


class LaunchError(TrialError):
    """The ranks could not be brought together, or the request could not be read."""

    kind: Kind = "launch_error"


def classify(error: BaseException) -> Kind:
    """The kind of failure that an exception means."""
    if isinstance(error, TrialError):
        return error.kind
    if isinstance(error, ContractError):
        return "launch_error"
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return "out_of_memory"
    if isinstance(error, RuntimeError | OSError):
        text = str(error).lower()
        if any(part in text for part in _OUT_OF_MEMORY_TEXTS):
            return "out_of_memory"
    return "crash"
