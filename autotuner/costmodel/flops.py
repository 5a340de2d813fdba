"""The only place where throughput, floating-point operations and MFU are computed.

Conventions, which published tables do not share: attention is counted in full although it is causal (as Megatron-LM
does; halving it would lower a small model's figure by a few percent), a multiplication with an addition is two
operations, the output projection counts, embedding look-up, norms and softmax do not.  Model FLOPs never include
recomputation; hardware FLOPs do.
"""

from __future__ import annotations

from autotuner.costmodel.params import active_matmul_parameters_per_layer, embedding_parameters
from autotuner.domain.cluster import ClusterSpec
from autotuner.domain.model import ModelSpec
from autotuner.domain.parallel import Recompute
from autotuner.domain.workload import Workload


def forward_layer_flops_per_token(model: ModelSpec, *, seq_len: int) -> int:
    """One layer's forward pass for one token: 2 x weights, and 4aes for scores and their product with the values."""
    return 2 * active_matmul_parameters_per_layer(model) + forward_attention_flops_per_token(model, seq_len=seq_len)


def forward_attention_flops_per_token(model: ModelSpec, *, seq_len: int) -> int:
    """The two products of one layer's attention core for one token, full attention: 4aes."""
    return 4 * model.num_heads * model.head_dim * seq_len


def model_flops_per_token(model: ModelSpec, *, seq_len: int) -> int:
    """Forward and backward (twice the forward) for one token.

    For a GPT-2 style model times B x s this is 72Bslh^2 (1 + s/6h + V/12lh): Narayanan et al., SC 2021, equation 3
    without the recomputation; Korthikanti et al. 2022, appendix A.
    """
    layers = model.num_layers * forward_layer_flops_per_token(model, seq_len=seq_len)
    return 3 * (layers + 2 * embedding_parameters(model))


def model_flops_per_step(model: ModelSpec, workload: Workload) -> int:
    """FLOPs that one optimizer step needs however it is laid out."""
    return workload.tokens_per_step * model_flops_per_token(model, seq_len=workload.seq_len)


def hardware_flops_per_step(model: ModelSpec, workload: Workload, *, recompute: Recompute) -> int:
    """FLOPs that are really executed: one more forward of every layer with full recomputation, one more of the
    attention core with selective.  Full gives 96Bslh^2 (1 + s/6h + V/16lh) (SC 2021, equation 3)."""
    per_token = 0
    if recompute == "full":
        per_token = forward_layer_flops_per_token(model, seq_len=workload.seq_len)
    elif recompute == "selective":
        per_token = forward_attention_flops_per_token(model, seq_len=workload.seq_len)
    return model_flops_per_step(model, workload) + workload.tokens_per_step * model.num_layers * per_token


def tokens_per_second(workload: Workload, *, step_seconds: float) -> float:
    """Tokens that the whole job trains on per second. Raises ValueError unless `step_seconds` is positive."""
    if not step_seconds > 0:
        raise ValueError(f"step_seconds is {step_seconds}; a step takes more than 0 seconds")
    return workload.tokens_per_step / step_seconds


def tokens_per_second_per_device(workload: Workload, *, step_seconds: float, num_devices: int) -> float:
    """Throughput of one of `num_devices` devices. Raises ValueError unless both are positive."""
    if num_devices <= 0:
        raise ValueError(f"num_devices is {num_devices}; a job runs on at least 1")
    return tokens_per_second(workload, step_seconds=step_seconds) / num_devices


def mfu(model: ModelSpec, workload: Workload, cluster: ClusterSpec, *, step_seconds: float) -> float | None:
    """Model FLOPs utilisation of all devices of the cluster, a fraction; None while the device's peak is unknown.

    Model FLOPs (no recomputation, attention in full) / (step x devices x dense peak at the workload's precision).
    Raises ValueError unless `step_seconds` is positive.
    """
    if not step_seconds > 0:
        raise ValueError(f"step_seconds is {step_seconds}; a step takes more than 0 seconds")
    peak = cluster.device.peak_flops.of(workload.precision)
    if peak is None:
        return None
    return model_flops_per_step(model, workload) / (step_seconds * cluster.world_size * peak)
