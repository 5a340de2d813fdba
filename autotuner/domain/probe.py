"""What micro-benchmarks said about a machine: rates of products, memory and messages, as measured.

Raw figures only; `presets/probed.py` reads a cluster out of them.  Written by `python -m trials.probe.run` as a JSON
document whose `schema` is checked here and then dropped.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from autotuner.domain.base import Count, Dimension, Lax, Name, NonNegative, Positive, Value
from autotuner.domain.cluster import DeviceKind
from autotuner.domain.workload import Precision

PROBE_SCHEMA = "autotuner.probe/1"

CollectiveOp = Literal["all_reduce", "all_gather", "reduce_scatter", "broadcast", "send_recv"]


class GemmPoint(Value):
    """FLOP/s that each of `ranks` processes reached, all multiplying [m, k] by [k, n] at the same time."""

    m: Dimension
    n: Dimension
    k: Dimension
    precision: Precision
    ranks: Count
    flops_per_second: Positive


class MemoryPoint(Value):
    """Bytes read and written per second by each of `ranks` processes, all streaming at the same time."""

    kind: Literal["copy", "add"]
    ranks: Count
    bytes_per_second: Positive


class CollectivePoint(Value):
    """Seconds of one call when nothing disturbs it (lower quartile).

    `num_bytes` is the size of the full tensor, of the message for send_recv.
    """

    op: CollectiveOp
    ranks: Count
    num_bytes: Annotated[int, Field(gt=0, le=2**40)]
    seconds: Positive


class ProbeResult(Value):
    """One run of the micro-benchmarks with `ranks` processes on one machine.

    `op_seconds` is the cost of one framework operation on a tensor too small to matter.  Fields about messages are
    null where only one rank was probed.
    """

    hostname: Name
    torch_version: Name
    device_kind: DeviceKind
    device_name: Name
    cores: Count
    ranks: Count
    threads_per_rank: Count
    gemm: Annotated[tuple[GemmPoint, ...], Lax, Field(min_length=1, max_length=1000)]
    memory: Annotated[tuple[MemoryPoint, ...], Lax, Field(min_length=1, max_length=1000)]
    collectives: Annotated[tuple[CollectivePoint, ...], Lax, Field(max_length=10_000)] = ()
    p2p_latency_seconds: Positive | None = None
    p2p_bandwidth_bytes_per_second: Positive | None = None
    op_seconds: Positive
    device_memory_bytes: Annotated[int, Field(gt=0, le=2**53)]
    probe_seconds: NonNegative = 0.0

    @model_validator(mode="before")
    @classmethod
    def _schema(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "schema" not in data:
            return data
        if data["schema"] != PROBE_SCHEMA:
            raise ValueError(f"the probe document's schema is {data['schema']!r}, not {PROBE_SCHEMA!r}; probe again")
        return {key: value for key, value in data.items() if key != "schema"}
