"""How long messages take: all-reduce by size, its two halves at one size, and a send between two ranks."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist

from trials.probe.clock import synchronize

ALL_REDUCE_BYTES = (4 * 1024, 64 * 1024, 1024 * 1024, 16 * 1024 * 1024)
HALVES_BYTES = 1024 * 1024
SEND_BYTES = (4 * 1024, 4 * 1024 * 1024)
_ROUNDS = {4 * 1024: 30, 64 * 1024: 30, 1024 * 1024: 12, 4 * 1024 * 1024: 6, 16 * 1024 * 1024: 4}


def time_collectives(group: dist.ProcessGroup, *, ranks: int, device: torch.device) -> list[dict[str, Any]]:
    """Points {op, ranks, num_bytes, seconds} of one group; called by its members only, at the same time."""
    points = [
        _point("all_reduce", ranks=ranks, num_bytes=size, seconds=_all_reduce(group, size, device=device))
        for size in ALL_REDUCE_BYTES
    ]
    whole = torch.zeros(HALVES_BYTES // 4 // ranks * ranks, device=device)
    part = torch.zeros(whole.numel() // ranks, device=device)
    # torch 2.13 renamed both and warns about the old names.
    all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    for name, operation in (
        ("all_gather", lambda: all_gather(whole, part, group=group)),
        ("reduce_scatter", lambda: reduce_scatter(part, whole, group=group)),
    ):
        seconds = _rounds(operation, count=_ROUNDS[HALVES_BYTES], device=device)
        points.append(_point(name, ranks=ranks, num_bytes=whole.numel() * 4, seconds=seconds))
    return points


def time_sends(*, rank: int, device: torch.device) -> list[dict[str, Any]]:
    """Points of one message from rank 0 to rank 1, half of a round trip; called by those two."""
    return [
        _point("send_recv", ranks=2, num_bytes=size, seconds=_round_trip(size, rank=rank, device=device) / 2)
        for size in SEND_BYTES
    ]


def latency_and_bandwidth(points: list[dict[str, Any]]) -> tuple[float, float]:
    """Seconds of an empty message and bytes per second, from a small and a large send."""
    small, large = (next(p for p in points if p["num_bytes"] == size) for size in SEND_BYTES)
    bandwidth = (large["num_bytes"] - small["num_bytes"]) / max(large["seconds"] - small["seconds"], 1e-7)
    return max(small["seconds"] - small["num_bytes"] / bandwidth, 1e-7), bandwidth


def _all_reduce(group: dist.ProcessGroup, num_bytes: int, *, device: torch.device) -> float:
    tensor = torch.zeros(num_bytes // 4, device=device)
    return _rounds(lambda: dist.all_reduce(tensor, group=group), count=_ROUNDS[num_bytes], device=device)


def _round_trip(num_bytes: int, *, rank: int, device: torch.device) -> float:
    tensor = torch.zeros(num_bytes // 4, device=device)
    peer = 1 - rank

    def ping() -> None:
        steps = (dist.send, dist.recv) if rank == 0 else (dist.recv, dist.send)
        for step in steps:
            step(tensor, peer)

    return _rounds(ping, count=_ROUNDS[num_bytes], device=device)


def _rounds(operation: Any, *, count: int, device: torch.device) -> float:
    """Every member must make the same number of calls, so it is the count that is fixed and not the time."""
    samples = []
    for _ in range(count + 2):
        before = time.perf_counter()
        operation()
        synchronize(device)
        samples.append(time.perf_counter() - before)
    # The lower quartile: other programs only ever slow a call down, but a lucky single call is no measure either.
    counted = sorted(samples[2:])
    return counted[len(counted) // 4]


def _point(op: str, *, ranks: int, num_bytes: int, seconds: float) -> dict[str, Any]:
    return {"op": op, "ranks": ranks, "num_bytes": num_bytes, "seconds": seconds}
