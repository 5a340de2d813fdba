"""Models, workloads and clusters that cost model tests share, with round numbers wherever a test computes by hand."""

from __future__ import annotations

from autotuner.costmodel.candidates import CandidateArrays
from autotuner.domain.cluster import ClusterSpec, DeviceSpec, LinkSpec, PeakFlops, SystemConstants
from autotuner.domain.model import ModelSpec
from autotuner.domain.parallel import ParallelConfig
from autotuner.domain.workload import Workload

# 124,439,808 parameters.
GPT2 = ModelSpec(name="gpt2", num_layers=12, hidden_size=768, num_heads=12)
# Korthikanti et al. 2022, table 3: h 12288, a 96, L 96, s 2048, t 8, b 1, p 8, m 64.
GPT3 = ModelSpec(name="gpt3", num_layers=96, hidden_size=12288, num_heads=96, vocab_size=51_200, max_seq_len=2048)
LLAMA2_7B = ModelSpec(
    name="llama-2-7b",
    num_layers=32,
    hidden_size=4096,
    num_heads=32,
    gated_ffn=True,
    ffn_hidden_size=11_008,
    vocab_size=32_000,
    max_seq_len=4096,
    tied_embeddings=False,
    norm="rms",
    position="rope",
    biases=False,
)
SMALL = Workload(seq_len=1024, global_batch_size=64, precision="bf16")


def round_cluster(
    *, nodes: int = 1, devices_per_node: int = 8, memory_bytes: int = 80 * 10**9, slots: int | None = None
) -> ClusterSpec:
    """1 PFLOP/s, 1 TB/s of memory, 100 GB/s inside and 10 GB/s between nodes a device; all efficiencies 1."""
    return ClusterSpec(
        nodes=nodes,
        devices_per_node=devices_per_node,
        device=DeviceSpec(
            name="round",
            memory_bytes=memory_bytes,
            peak_flops=PeakFlops(bf16=1e15, fp32=5e14),
            memory_bandwidth_bytes_per_second=1e12,
        ),
        intra_node=LinkSpec(bandwidth_bytes_per_second=1e11, latency_seconds=1e-6),
        inter_node=LinkSpec(bandwidth_bytes_per_second=1e10, latency_seconds=1e-5),
        constants=SystemConstants(
            gemm_efficiency=1.0,
            gemm_half_k=0.0,
            memory_efficiency=1.0,
            intra_node_efficiency=1.0,
            inter_node_efficiency=1.0,
            launch_seconds=0.0,
            context_bytes=0.0,
            fragmentation=1.0,
            compute_slots_per_node=slots,
        ),
    )


def arrays(*configs: ParallelConfig) -> CandidateArrays:
    """Layouts as columns."""
    return CandidateArrays.of(configs)
