"""Where a rank learns its place, and which device it may use."""

from __future__ import annotations

import pytest
import torch

from tests.support.run_requests import run_request_for
from trials.contract import Resources
from trials.failures import LaunchError, MismatchError
from trials.profile import status_bytes
from trials.runtime import RankPlace, choose_device

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "host", "MASTER_PORT": "29500"}
ACCELERATOR = Resources(
    device="accelerator", memory_limit_bytes=None, threads_per_rank=1, collective_timeout_seconds=1.0
)


def test_the_place_is_what_torchrun_sets() -> None:
    place = RankPlace.from_environment(TORCHRUN)
    assert place == RankPlace(rank=3, world_size=8, local_rank=1, init_method="env://")


def test_missing_variables_are_named() -> None:
    with pytest.raises(LaunchError, match="LOCAL_RANK, MASTER_PORT are not set; start with torchrun"):
        RankPlace.from_environment({k: v for k, v in TORCHRUN.items() if k not in ("LOCAL_RANK", "MASTER_PORT")})


def test_a_rank_that_is_no_number_is_refused() -> None:
    with pytest.raises(LaunchError, match="whole numbers"):
        RankPlace.from_environment({**TORCHRUN, "RANK": "first"})


def test_the_cpu_is_used_when_asked_for() -> None:
    assert choose_device(run_request_for().resources, local_rank=5) == torch.device("cpu")


def test_an_accelerator_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    with pytest.raises(MismatchError, match="torch finds none here; use device cpu"):
        choose_device(ACCELERATOR, local_rank=0)


def test_a_rank_without_a_device_of_its_own_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    with pytest.raises(MismatchError, match="local rank 2 has no device: this host has 2"):
        choose_device(ACCELERATOR, local_rank=2)


def test_the_kernel_says_how_much_memory_a_process_has() -> None:
    # torch alone is over 100 MB resident.
    assert status_bytes("VmHWM") >= status_bytes("VmRSS") > 100_000_000
