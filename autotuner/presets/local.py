"""The machine the service runs on, as a cluster of one node whose devices are its cores (or its accelerators).

Decides how many ranks that is by default and how much memory each may use.
"""

from __future__ import annotations

from autotuner.domain.base import DERIVE, Derived
from autotuner.domain.cluster import ClusterSpec, DeviceSpec, LinkSpec, SystemConstants
from autotuner.domain.probe import ProbeResult
from autotuner.presets.loader import LOCAL_CLUSTER, device_preset
from autotuner.presets.probed import (
    CPU_CONTEXT_BYTES,
    CPU_FRAGMENTATION,
    constants_from_probe,
    device_from_probe,
    link_from_probe,
)

# The rest is for the system, the service and what other programs take while a trial runs.
_MEMORY_SHARE = 0.6
_MAX_DEFAULT_RANKS = 8

# Messages between processes of one machine over loopback, where nothing was measured.
_LOOPBACK = LinkSpec(bandwidth_bytes_per_second=1.5e9, latency_seconds=150e-6)
# A core of unknown speed: estimates are right in tendency only, and say so by their deviation.
_UNMEASURED_TIME_SIGMA = 0.5


def local_cluster(
    *,
    devices_per_node: int | Derived = DERIVE,
    total_memory_bytes: int,
    cores: int,
    probe: ProbeResult | None,
) -> ClusterSpec:
    """One node of this machine. More ranks than cores are allowed: they share the cores.

    `devices_per_node` is derived as 2 up to two cores, else one rank a core up to 8; on a machine whose probe found
    accelerators it is what was probed.
    """
    ranks = _default_ranks(cores, probe=probe) if devices_per_node == DERIVE else devices_per_node
    memory_bytes = max(1, int(total_memory_bytes * _MEMORY_SHARE / ranks))
    if probe is None:
        return _unmeasured(ranks=ranks, cores=cores, memory_bytes=memory_bytes)
    on_cpu = probe.device_kind == "cpu"
    link = link_from_probe(probe, fallback=_LOOPBACK)
    return ClusterSpec(
        name=LOCAL_CLUSTER,
        nodes=1,
        devices_per_node=ranks,
        device=device_from_probe(probe, memory_bytes=memory_bytes if on_cpu else probe.device_memory_bytes),
        intra_node=link,
        inter_node=link,
        constants=constants_from_probe(probe, compute_slots_per_node=cores if on_cpu else None),
    )


def _default_ranks(cores: int, *, probe: ProbeResult | None) -> int:
    if probe is not None and probe.device_kind == "accelerator":
        return probe.ranks
    return 2 if cores <= 2 else min(cores, _MAX_DEFAULT_RANKS)


def _unmeasured(*, ranks: int, cores: int, memory_bytes: int) -> ClusterSpec:
    core = device_preset("cpu-core")
    device = DeviceSpec.model_validate({**dict(core), "memory_bytes": memory_bytes})
    return ClusterSpec(
        name=LOCAL_CLUSTER,
        nodes=1,
        devices_per_node=ranks,
        device=device,
        intra_node=_LOOPBACK,
        inter_node=_LOOPBACK,
        constants=SystemConstants(
            gemm_efficiency=0.8,
            gemm_half_k=20.0,
            launch_seconds=8e-6,
            intra_node_efficiency=1.0,
            inter_node_efficiency=1.0,
            context_bytes=CPU_CONTEXT_BYTES,
            fragmentation=CPU_FRAGMENTATION,
            time_sigma=_UNMEASURED_TIME_SIGMA,
            memory_sigma=0.2,
            compute_slots_per_node=cores,
        ),
    )
