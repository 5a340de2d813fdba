"""What a probe says about a machine, read into the terms of the cost model: a device, a link and a few constants.

Decides which of the measured figures stands for which constant.  The formulas inverted here are those of
`costmodel/compute.py` (rate = e K / (K + K0)) and `costmodel/collectives.py` (ring all-reduce).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import TypeVar

from autotuner.domain.cluster import DeviceSpec, LinkSpec, PeakFlops, SystemConstants
from autotuner.domain.probe import GemmPoint, MemoryPoint, ProbeResult
from autotuner.domain.units import MIB
from autotuner.domain.workload import Precision

Point = TypeVar("Point", GemmPoint, MemoryPoint)

_PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16", "fp16", "fp8")
# Of a CPU rank only what training allocates counts as memory: little is there before the first step, and the C library
# keeps about a fifth more than is in use.  A device context is gibibytes instead.
CPU_CONTEXT_BYTES = 6.0 * MIB
_ACCELERATOR_CONTEXT_BYTES = 3.0 * 1024 * MIB
CPU_FRAGMENTATION = 1.20
_ACCELERATOR_FRAGMENTATION = 1.10
# Machines that were probed are estimated to within a quarter; noise of a shared CPU is most of it.
_TIME_SIGMA = 0.25
_MEMORY_SIGMA = 0.15


def device_from_probe(probe: ProbeResult, *, memory_bytes: int) -> DeviceSpec:
    """One rank's device. The best product that was measured is taken as the peak at each precision."""
    alone = _alone(probe, probe.gemm)
    best = {
        precision: max((point.flops_per_second for point in alone if point.precision == precision), default=None)
        for precision in _PRECISIONS
    }
    # All ranks stream at once in training, so the bandwidth is what each keeps when all of them do.
    streams = _alone(probe, probe.memory)
    busiest = max(point.ranks for point in streams)
    return DeviceSpec(
        name=probe.device_name,
        kind=probe.device_kind,
        memory_bytes=memory_bytes,
        peak_flops=PeakFlops(**best),
        memory_bandwidth_bytes_per_second=median(p.bytes_per_second for p in streams if p.ranks == busiest),
    )


def link_from_probe(probe: ProbeResult, *, fallback: LinkSpec) -> LinkSpec:
    """Latency and bandwidth behind the measured all-reduces; `fallback` where only one rank was probed."""
    by_ranks: dict[int, dict[int, float]] = {}
    for point in probe.collectives:
        if point.op == "all_reduce" and point.ranks > 1:
            by_ranks.setdefault(point.ranks, {})[point.num_bytes] = point.seconds
    if not by_ranks:
        return fallback
    latencies, bandwidths = [], []
    for ranks, seconds in by_ranks.items():
        # Ranks that share cores take turns: that slowdown is the cost model's to apply, not the link's.
        turns = max(1.0, ranks / probe.cores) if probe.device_kind == "cpu" else 1.0
        smallest, largest = min(seconds), max(seconds)
        steps = min(2 * (ranks - 1), 2 * math.log2(ranks))
        latency = max(seconds[smallest] / turns - probe.op_seconds, 1e-7) / steps
        transfer = max(seconds[largest] / turns - probe.op_seconds - 2 * (ranks - 1) * latency, 1e-7)
        latencies.append(latency)
        bandwidths.append(2 * (ranks - 1) / ranks * largest / transfer)
    return LinkSpec(bandwidth_bytes_per_second=median(bandwidths), latency_seconds=median(latencies))


def constants_from_probe(probe: ProbeResult, *, compute_slots_per_node: int | None) -> SystemConstants:
    """Efficiencies relative to `device_from_probe`'s peaks; links are measured, so theirs are 1."""
    efficiency, half_k = _gemm_saturation(probe)
    on_cpu = probe.device_kind == "cpu"
    return SystemConstants(
        gemm_efficiency=efficiency,
        gemm_half_k=half_k,
        memory_efficiency=1.0,
        intra_node_efficiency=1.0,
        inter_node_efficiency=1.0,
        launch_seconds=probe.op_seconds,
        context_bytes=CPU_CONTEXT_BYTES if on_cpu else _ACCELERATOR_CONTEXT_BYTES,
        fragmentation=CPU_FRAGMENTATION if on_cpu else _ACCELERATOR_FRAGMENTATION,
        time_sigma=_TIME_SIGMA,
        memory_sigma=_MEMORY_SIGMA,
        compute_slots_per_node=compute_slots_per_node,
    )


def _gemm_saturation(probe: ProbeResult) -> tuple[float, float]:
    """e and K0 by least squares on 1/rate = (1 + K0/K) / (e peak), from the busiest products that own their core."""
    alone = _alone(probe, probe.gemm)
    precision = next(p for p in _PRECISIONS if any(point.precision == p for point in alone))
    points = [point for point in alone if point.precision == precision]
    peak = max(point.flops_per_second for point in points)
    busiest = max(point.ranks for point in points)
    rows = [(1.0 / p.k, peak / p.flops_per_second) for p in points if p.ranks == busiest]
    mean_x, mean_y = sum(x for x, _ in rows) / len(rows), sum(y for _, y in rows) / len(rows)
    spread = sum((x - mean_x) ** 2 for x, _ in rows)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in rows) / spread if spread > 0 else 0.0
    slope = max(slope, 0.0)
    intercept = max(mean_y - slope * mean_x, 1.0)
    return min(1.0 / intercept, 1.0), slope / intercept


def _alone(probe: ProbeResult, points: Sequence[Point]) -> list[Point]:
    """Points measured while no two ranks shared a core; all of them where there are none."""
    if probe.device_kind != "cpu":
        return list(points)
    return [point for point in points if point.ranks <= probe.cores] or list(points)
