"""What one device really does per second: peaks times the efficiencies of the cluster's constants.

Decides what is assumed when a peak is unknown (for times only: MFU then stays unknown) and how ranks that outnumber
a node's compute slots share them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotuner.domain.cluster import ClusterSpec, DeviceSpec
from autotuner.domain.workload import Precision

Floats = NDArray[np.float64]

ELEMENT_BYTES: dict[Precision, int] = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 2}
"""Bytes of one activation: FP8 programs keep activations in 16 bit and convert them for the products."""

# Where the peak of a precision is unknown, that of the next one is taken, times the usual ratio of their units.
_SUBSTITUTES: dict[Precision, tuple[tuple[Precision, float], ...]] = {
    "fp32": (("bf16", 0.5), ("fp16", 0.5)),
    "bf16": (("fp16", 1.0), ("fp32", 1.0)),
    "fp16": (("bf16", 1.0), ("fp32", 1.0)),
    "fp8": (("bf16", 1.0), ("fp16", 1.0), ("fp32", 1.0)),
}
# FLOPs per byte of memory traffic where nothing is known: an A100 does 156, one CPU core about 6.
_BALANCE_FLOPS_PER_BYTE = {"accelerator": 150.0, "cpu": 6.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """One device alone on its node, at one precision.

    `flops_per_second` is what large products reach; `half_k` the inner dimension at which they reach half of it.
    `sequential_launch`: the processor that computes also issues the operations (a CPU), so launching is added to the
    work instead of being hidden behind it.
    """

    flops_per_second: float
    half_k: float
    memory_bytes_per_second: float
    launch_seconds: float
    element_bytes: int
    sequential_launch: bool

    def stream_seconds(self, num_bytes: Any) -> Floats:
        """Seconds to read and write this many bytes."""
        return np.asarray(num_bytes, dtype=np.float64) / self.memory_bytes_per_second

    def with_launches(self, seconds: Floats, *, operations: float) -> Floats:
        """Work and the cost of issuing it as this many operations."""
        issue = operations * self.launch_seconds
        return seconds + issue if self.sequential_launch else np.maximum(seconds, issue)


def rates_of(cluster: ClusterSpec, *, precision: Precision) -> Rates:
    """The rates of one device of a cluster."""
    device, constants = cluster.device, cluster.constants
    return Rates(
        flops_per_second=assumed_peak_flops(device, precision=precision) * constants.gemm_efficiency,
        half_k=constants.gemm_half_k,
        memory_bytes_per_second=device.memory_bandwidth_bytes_per_second * constants.memory_efficiency,
        launch_seconds=constants.launch_seconds,
        element_bytes=ELEMENT_BYTES[precision],
        sequential_launch=device.kind == "cpu",
    )


def assumed_peak_flops(device: DeviceSpec, *, precision: Precision) -> float:
    """The peak of a precision; where it is unknown, the best guess from what is known."""
    known = device.peak_flops.of(precision)
    if known is not None:
        return known
    for other, ratio in _SUBSTITUTES[precision]:
        peak = device.peak_flops.of(other)
        if peak is not None:
            return peak * ratio
    return device.memory_bandwidth_bytes_per_second * _BALANCE_FLOPS_PER_BYTE[device.kind]


def compute_share(cluster: ClusterSpec, *, world_size: Any, activity: Floats) -> Floats:
    """Share of its full speed that a rank gets where ranks outnumber a node's compute slots; 1 elsewhere.

    `activity` is the average share of the step in which a rank is busy: a rank that waits in a pipeline bubble leaves
    its slot to the others.  The step then takes as long as its critical path or as all work over all slots needs,
    whichever is longer.
    """
    slots = cluster.constants.compute_slots_per_node
    if slots is None:
        return np.ones_like(activity)
    ranks = np.minimum(cluster.devices_per_node, np.asarray(world_size, dtype=np.float64))
    return np.minimum(1.0, slots / np.maximum(ranks * activity, 1e-9))


def spare_slots(cluster: ClusterSpec, *, world_size: Any) -> Floats:
    """Whether communication can run beside compute: 1 on devices with engines of their own, 0 on full CPU cores."""
    slots = cluster.constants.compute_slots_per_node
    world = np.asarray(world_size, dtype=np.float64)
    if slots is None:
        return np.ones_like(world)
    ranks = np.minimum(cluster.devices_per_node, world)
    return np.clip(slots / ranks - 1.0, 0.0, 1.0)
