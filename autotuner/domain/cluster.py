"""Where it is trained: devices, links and how many of them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from autotuner.domain.base import Count, Name, NonNegative, Positive, Value
from autotuner.domain.workload import Precision

DeviceKind = Literal["cpu", "accelerator"]


class PeakFlops(Value):
    """Dense matrix-product peak of one device in FLOP/s for each precision; null where it has none or is unknown."""

    fp32: Positive | None = None
    bf16: Positive | None = None
    fp16: Positive | None = None
    fp8: Positive | None = None

    def of(self, precision: Precision) -> float | None:
        """The peak for a precision, null if unknown: then MFU is null too, never a guess."""
        value: float | None = getattr(self, precision)
        return value


class DeviceSpec(Value):
    """One device that holds one rank: a GPU, or a share of a CPU."""

    name: Name
    kind: DeviceKind = "accelerator"
    memory_bytes: Annotated[int, Field(gt=0, le=2**53)]
    peak_flops: PeakFlops
    memory_bandwidth_bytes_per_second: Positive
    price_per_hour: NonNegative | None = None


class LinkSpec(Value):
    """Bandwidth one device gets over a link, in one direction, and the latency of one message."""

    bandwidth_bytes_per_second: Positive
    latency_seconds: Annotated[float, Field(ge=0, le=10)] = 5e-6


class SystemConstants(Value):
    """The few efficiencies of a system that calibration may fit; defaults are those of no particular machine.

    `gemm_efficiency` is reached by large products; `gemm_half_k` is the inner dimension K at which a product
    reaches half of it.  `launch_seconds` is the floor of one kernel or collective call.
    """

    gemm_efficiency: Annotated[float, Field(gt=0, le=2)] = 0.85
    gemm_half_k: Annotated[float, Field(ge=0, le=1e6)] = 250.0
    memory_efficiency: Annotated[float, Field(gt=0, le=2)] = 0.80
    intra_node_efficiency: Annotated[float, Field(gt=0, le=4)] = 0.75
    inter_node_efficiency: Annotated[float, Field(gt=0, le=4)] = 0.80
    launch_seconds: Annotated[float, Field(ge=0, le=10)] = 25e-6
    context_bytes: Annotated[float, Field(ge=0, le=2**50)] = 1.5 * 2**30
    fragmentation: Annotated[float, Field(ge=1, le=4)] = 1.10
    time_sigma: Annotated[float, Field(gt=0, le=5)] = 0.12
    memory_sigma: Annotated[float, Field(gt=0, le=5)] = 0.08
    # Ranks beyond this many on one node share its compute: 4 ranks on 2 cores each get half a core's speed.
    compute_slots_per_node: Count | None = None


class ClusterSpec(Value):
    """`nodes` equal machines of `devices_per_node` devices; ranks fill a node before the next one starts."""

    name: Name = "cluster"
    nodes: Count = 1
    devices_per_node: Annotated[int, Field(gt=0, le=1024)]
    device: DeviceSpec
    intra_node: LinkSpec
    inter_node: LinkSpec
    constants: SystemConstants = SystemConstants()

    @property
    def world_size(self) -> int:
        """Devices in all, which is the number of ranks."""
        return self.nodes * self.devices_per_node
