"""From what a user wrote to a job in which nothing is left open: presets looked up, derived values filled in.

Decides the defaults that depend on other values (sequence length, precision, the local machine's cluster) and refuses
what cannot be meant.  Whether any layout is feasible is the search's business.
"""

from __future__ import annotations

from autotuner.domain.base import DERIVE
from autotuner.domain.capabilities import Capabilities
from autotuner.domain.cluster import ClusterSpec
from autotuner.domain.errors import InvalidInput
from autotuner.domain.job import BaselineRequest, ClusterPreset, JobRequest, ModelPreset, TuningJob
from autotuner.domain.machine import Machine
from autotuner.domain.model import ModelSpec
from autotuner.domain.parallel import ParallelConfig
from autotuner.domain.probe import ProbeResult
from autotuner.domain.workload import Precision, Workload
from autotuner.presets.loader import cluster_preset, model_preset
from autotuner.presets.local import local_cluster

LOCAL = "local"


def resolve_job(
    request: JobRequest, *, machine: Machine, probe: ProbeResult | None, capabilities: Capabilities
) -> TuningJob:
    """The job in full. Raises InvalidInput (unknown preset, sequence too long, impossible baseline)."""
    model = model_preset(request.model.preset) if isinstance(request.model, ModelPreset) else request.model
    cluster = _cluster(request.cluster, machine=machine, probe=probe)
    return TuningJob(
        name=request.name,
        model=model,
        workload=_workload(request, model=model, cluster=cluster, capabilities=capabilities),
        cluster=cluster,
        space=request.space,
        baseline=None if request.baseline is None else _baseline(request.baseline, cluster=cluster),
        framework=request.framework,
        objective=request.objective,
        budget=request.budget,
        strategy=request.strategy,
        seed=request.seed,
        measure=request.measure,
        launcher=request.launcher,
    )


def _cluster(choice: ClusterSpec | ClusterPreset, *, machine: Machine, probe: ProbeResult | None) -> ClusterSpec:
    if isinstance(choice, ClusterSpec):
        return choice
    if choice.preset != LOCAL:
        return cluster_preset(choice.preset, nodes=choice.nodes, devices_per_node=choice.devices_per_node)
    if choice.nodes not in (DERIVE, 1):
        raise InvalidInput(
            f"the cluster preset {LOCAL} is this one machine, not {choice.nodes} nodes; leave nodes out",
            field="cluster.nodes",
        )
    return local_cluster(
        devices_per_node=choice.devices_per_node,
        total_memory_bytes=machine.total_memory_bytes,
        cores=machine.cores,
        probe=probe,
    )


def _workload(request: JobRequest, *, model: ModelSpec, cluster: ClusterSpec, capabilities: Capabilities) -> Workload:
    wanted = request.workload
    seq_len = model.max_seq_len if wanted.seq_len == DERIVE else wanted.seq_len
    if model.position == "learned" and seq_len > model.max_seq_len:
        raise InvalidInput(
            f"seq_len {seq_len} is more than the model's max_seq_len {model.max_seq_len}, and its positions are"
            f" learned; use at most {model.max_seq_len}",
            field="workload.seq_len",
        )
    precision = _best_precision(cluster, capabilities) if wanted.precision == DERIVE else wanted.precision
    return Workload(
        seq_len=seq_len,
        global_batch_size=wanted.global_batch_size,
        precision=precision,
        optimizer=wanted.optimizer,
    )


def _best_precision(cluster: ClusterSpec, capabilities: Capabilities) -> Precision:
    """What people train with on such devices: 16 bit where the hardware has it, full precision on a CPU."""
    order: tuple[Precision, ...] = ("bf16", "fp16", "fp32") if cluster.device.kind == "accelerator" else ("fp32",)
    for precision in order:
        known = precision == "fp32" or cluster.device.peak_flops.of(precision) is not None
        if known and precision in capabilities.precisions:
            return precision
    return capabilities.precisions[0]


def _baseline(request: BaselineRequest, *, cluster: ClusterSpec) -> ParallelConfig:
    model_parallel = request.tp * request.pp
    dp = max(1, cluster.world_size // model_parallel) if request.dp == DERIVE else request.dp
    if request.virtual_stages > 1 and request.pp == 1:
        raise InvalidInput("virtual_stages needs pp of at least 2; use virtual_stages 1", field="baseline")
    return ParallelConfig(
        tp=request.tp,
        pp=request.pp,
        dp=dp,
        micro_batch_size=request.micro_batch_size,
        virtual_stages=request.virtual_stages,
        sequence_parallel=request.sequence_parallel,
        zero_stage=request.zero_stage,
        recompute=request.recompute,
    )


def with_baseline(job: TuningJob) -> ParallelConfig:
    """The baseline of a job that must have one. Raises InvalidInput."""
    if job.baseline is None:
        raise InvalidInput("the job names no layout", field="baseline")
    return job.baseline
