"""Exceptions become the kinds that the supervisor knows."""

from __future__ import annotations

import pytest
import torch

from trials.contract import ContractError
from trials.failures import EXIT_CODES, DivergedError, LaunchError, MismatchError, classify


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: Error code 12"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("NCCL error: ... ncclUnhandledCudaError ... Failed to CUDA calloc async 608 bytes"),
        RuntimeError("std::bad_alloc"),
        OSError(12, "Cannot allocate memory"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_memory_that_could_not_be_had_is_out_of_memory(error: BaseException) -> None:
    assert classify(error) == "out_of_memory"


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        (MismatchError("x"), "mismatch", 41),
        (DivergedError("x"), "diverged", 42),
        (LaunchError("x"), "launch_error", 1),
        (ContractError("x"), "launch_error", 1),
        (RuntimeError("Connection closed by peer [127.0.0.1]:4711"), "crash", 1),
        (ValueError("out of memory"), "crash", 1),  # the allocators raise none
    ],
)
def test_everything_else_keeps_its_kind(error: BaseException, kind: str, status: int) -> None:
    assert classify(error) == kind
    assert EXIT_CODES[classify(error)] == status


def test_out_of_memory_has_the_contracts_exit_status() -> None:
    assert EXIT_CODES["out_of_memory"] == 40
