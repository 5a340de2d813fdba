"""What one probing rank does, in step with the others; rank 0 writes the document.

Rates are measured with 1 rank busy, with one a core, and with all of them, while the others wait asleep.  A rate with
several ranks is their mean.  No objects are sent between ranks, only numbers.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist

from trials.contract import Resources
from trials.probe.clock import Statistic
from trials.probe.collectives import latency_and_bandwidth, time_collectives, time_sends
from trials.probe.matmul import PRECISIONS, gemm_flops_per_second, operation_seconds, shapes_for
from trials.probe.memory import Streams
from trials.report import device_name
from trials.runtime import RankPlace, choose_device, join_world, leave_world, prepare_process

SCHEMA = "autotuner.probe/1"


class StreamRate(Protocol):
    """A rate of `Streams`."""

    def __call__(self, *, statistic: Statistic) -> float: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """The ranks that probe together."""

    rank: int
    size: int
    cores: int
    device: torch.device

    def busy_counts(self) -> list[int]:
        """How many ranks are busy at once: 1, one a core (or device), all."""
        own = min(self.size, self.cores) if self.device.type == "cpu" else self.size
        return sorted({1, own, self.size})

    def statistic(self, *, busy: int) -> Statistic:
        """The best call where every busy rank owns its core or device, else the mean."""
        return "mean" if self.device.type == "cpu" and busy > self.cores else "best"

    def mean_rate(self, measure: Callable[[], float], *, busy: int) -> float:
        """Mean of what the first `busy` ranks measure at the same time; known to every rank."""
        rate = torch.zeros((), dtype=torch.float64)
        dist.barrier()
        if self.rank < busy:
            rate += measure()
        rate = rate.to(self.device, dtype=torch.float32 if self.device.type == "mps" else torch.float64)
        dist.all_reduce(rate)
        return rate.item() / busy


def run_probe_rank(*, rank: int, size: int, output: Path, rendezvous: Path, timeout_seconds: float, kind: str) -> None:
    """Probe as one rank of `size`; `kind` is cpu, accelerator, or auto (accelerators where each rank finds one)."""
    started = time.perf_counter()
    device = _device(kind, rank=rank, size=size)
    place = RankPlace(rank=rank, world_size=size, local_rank=rank, init_method=f"file://{rendezvous}")
    join_world(place, device=device, timeout_seconds=timeout_seconds)
    crew = Crew(rank=rank, size=size, cores=_cores(), device=device)
    document = {
        "schema": SCHEMA,
        "hostname": platform.node() or "unknown",
        "torch_version": torch.__version__,
        "device_kind": "cpu" if device.type == "cpu" else "accelerator",
        "device_name": device_name(device) or device.type,
        "cores": crew.cores,
        "ranks": size,
        "threads_per_rank": torch.get_num_threads(),
        "gemm": _gemm_points(crew),
        "memory": _memory_points(crew),
        "op_seconds": crew.mean_rate(lambda: operation_seconds(device), busy=crew.busy_counts()[0]),
        "device_memory_bytes": _memory_bytes(device),
    } | _messages(crew)
    dist.barrier()
    if rank == 0:
        _write(output, document | {"probe_seconds": time.perf_counter() - started})
    leave_world()


def _device(kind: str, *, rank: int, size: int) -> torch.device:
    enough = torch.accelerator.is_available() and torch.accelerator.device_count() >= size
    wanted = "accelerator" if kind == "accelerator" or (kind == "auto" and enough) else "cpu"
    resources = Resources(
        device="accelerator" if wanted == "accelerator" else "cpu",
        memory_limit_bytes=None,
        threads_per_rank=1,
        collective_timeout_seconds=30.0,
    )
    prepare_process(resources)
    return choose_device(resources, local_rank=rank)


def _gemm_points(crew: Crew) -> list[dict[str, Any]]:
    points = []
    for busy in crew.busy_counts():
        for precision, dtype in PRECISIONS.items():
            for m, n, k in shapes_for(crew.device):
                rate = crew.mean_rate(
                    lambda m=m, n=n, k=k, dtype=dtype, busy=busy: gemm_flops_per_second(  # type: ignore[misc]
                        m, n=n, k=k, dtype=dtype, device=crew.device, statistic=crew.statistic(busy=busy)
                    ),
                    busy=busy,
                )
                point = {"m": m, "n": n, "k": k, "precision": precision, "ranks": busy, "flops_per_second": rate}
                points.append(point)
    return points


def _memory_points(crew: Crew) -> list[dict[str, Any]]:
    streams = Streams(crew.device)
    return [
        {"kind": kind, "ranks": busy, "bytes_per_second": _stream_rate(crew, measure, busy=busy)}
        for busy in crew.busy_counts()
        for kind, measure in (("copy", streams.copy_bytes_per_second), ("add", streams.add_bytes_per_second))
    ]


def _stream_rate(crew: Crew, measure: StreamRate, *, busy: int) -> float:
    return crew.mean_rate(lambda: measure(statistic=crew.statistic(busy=busy)), busy=busy)


def _messages(crew: Crew) -> dict[str, Any]:
    if crew.size == 1:
        return {"collectives": [], "p2p_latency_seconds": None, "p2p_bandwidth_bytes_per_second": None}
    points: list[dict[str, Any]] = []
    latency = bandwidth = None
    for count in sorted({2, crew.size}):
        # Every rank takes part in making a group, its members alone in using it.
        group = dist.new_group(list(range(count)))
        if crew.rank < count:
            points += time_collectives(group, ranks=count, device=crew.device)
        dist.barrier()
    if crew.rank < 2:
        sends = time_sends(rank=crew.rank, device=crew.device)
        latency, bandwidth = latency_and_bandwidth(sends)
        points += sends
    return {"collectives": points, "p2p_latency_seconds": latency, "p2p_bandwidth_bytes_per_second": bandwidth}


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory_bytes(device: torch.device) -> int:
    if device.type == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    _, total = torch.get_device_module(device).mem_get_info(device)
    return int(total)


def _write(path: Path, document: dict[str, Any]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(document, allow_nan=False, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)
