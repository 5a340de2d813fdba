"""The process a rank runs in: its place from the environment, device, threads, memory limit, process group.

It decides how the process is set up.  What runs in it is `run.py`'s business.
"""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from trials.contract import Resources
from trials.failures import LaunchError, MismatchError
from trials.profile import status_bytes

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlace:
    """Which rank this process is, and how it finds the others (an init_method of torch.distributed)."""

    rank: int
    world_size: int
    local_rank: int
    init_method: str

    @staticmethod
    def from_environment(environment: Mapping[str, str]) -> RankPlace:
        """What torchrun sets. Raises LaunchError naming the variables that are missing or no numbers."""
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
        if missing := [name for name in names if name not in environment]:
            raise LaunchError(f"environment variables {', '.join(missing)} are not set; start with torchrun")
        try:
            rank, world_size, local_rank = (int(environment[name]) for name in names[:3])
        except ValueError as error:
            raise LaunchError(f"RANK, WORLD_SIZE and LOCAL_RANK must be whole numbers: {error}") from None
        return RankPlace(rank=rank, world_size=world_size, local_rank=local_rank, init_method="env://")


def choose_device(resources: Resources, *, local_rank: int) -> torch.device:
    """The device of this rank. Raises MismatchError if there is none for it."""
    if resources.device == "cpu":
        return torch.device("cpu")
    kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if kind is None:
        raise MismatchError("the request asks for an accelerator, and torch finds none here; use device cpu")
    count = torch.accelerator.device_count()
    if local_rank >= count:
        raise MismatchError(f"local rank {local_rank} has no device: this host has {count}")
    torch.accelerator.set_device_index(local_rank)
    return torch.device(kind.type, local_rank)


def prepare_process(resources: Resources) -> None:
    """Threads and allocator, before anything large is allocated."""
    torch.set_num_threads(max(1, resources.threads_per_rank))
    if resources.device == "cpu":
        _keep_freed_memory()


def _keep_freed_memory() -> None:
    """Make glibc reuse blocks up to 32 MiB instead of mapping them anew, which costs page faults at every step."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return  # Another libc; correct without it, only slower.
    trim_threshold, mmap_threshold = -1, -3
    mallopt(mmap_threshold, 32 * 1024 * 1024)
    mallopt(trim_threshold, 512 * 1024 * 1024)


def limit_memory(resources: Resources) -> None:
    """On CPU let this process allocate `memory_limit_bytes` more than now; an accelerator limits itself.

    RLIMIT_DATA counts private writable memory, so libraries and shared mappings do not eat into a device's memory.
    """
    if resources.device != "cpu" or resources.memory_limit_bytes is None:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = status_bytes("VmData") + resources.memory_limit_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def lift_memory_limit() -> None:
    """Make room to report a failure."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def join_world(place: RankPlace, *, device: torch.device, timeout_seconds: float) -> str:
    """Meet the other ranks; returns the backend's name. Raises LaunchError if they don't come in time."""
    if device.type == "cpu" and "GLOO_SOCKET_IFNAME" not in os.environ and _is_single_host(place):
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    backend = dist.get_default_backend_for_device(device)
    try:
        dist.init_process_group(
            backend,
            init_method=place.init_method,
            rank=place.rank,
            world_size=place.world_size,
            timeout=timedelta(seconds=timeout_seconds),
            device_id=None if device.type == "cpu" else device,
        )
    except (RuntimeError, ValueError, OSError) as error:
        raise LaunchError(f"rank {place.rank} of {place.world_size} could not join the others: {error}") from error
    return str(backend)


def _is_single_host(place: RankPlace) -> bool:
    """Whether all ranks are surely on this host, so that gloo can use the loopback interface."""
    if not Path("/sys/class/net/lo").exists():
        return False
    if place.init_method.startswith("file://"):
        return True
    if os.environ.get("LOCAL_WORLD_SIZE") == str(place.world_size):
        return True
    return os.environ.get("MASTER_ADDR") in _LOOPBACK


def leave_world() -> None:
    """Close the process group if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()
