"""Whether the request can be built here, and whether what was built is what was asked for.

A trial that measured another model would be worse than a failed one.  Parameters are counted twice: by formula from the
request, and by adding up what the ranks hold.
"""

from __future__ import annotations

from trials.contract import Built, ModelShape, RunRequest
from trials.failures import MismatchError


def check_request(request: RunRequest, *, world_size: int) -> None:
    """Raise MismatchError, with the first reason, for a run that this trainer cannot do."""
    for reason in (*_unsupported(request), *_layout_reasons(request, world_size), *_batch_reasons(request)):
        raise MismatchError(reason)


def _unsupported(request: RunRequest) -> list[str]:
    layout = request.layout
    reasons = []
    if layout.sequence_parallel:
        reasons.append("sequence parallelism is not supported by the bundled trainer; set sequence_parallel to false")
    if layout.zero_stage > 0:
        reasons.append(f"ZeRO is not supported by the bundled trainer; set zero_stage to 0, not {layout.zero_stage}")
    if request.training.precision == "fp16":
        reasons.append("fp16 is not supported by the bundled trainer (it has no loss scaling); use bf16 or fp32")
    return reasons


def _layout_reasons(request: RunRequest, world_size: int) -> list[str]:
    layout, model = request.layout, request.model
    reasons = []
    sizes = (layout.tp, layout.pp, layout.dp, layout.virtual_stages, layout.micro_batch_size)
    if min(sizes) < 1:
        return [f"tp, pp, dp, virtual_stages and micro_batch_size must be at least 1, and one is {min(sizes)}"]
    if world_size != layout.world_size:
        reasons.append(
            f"tp {layout.tp} x pp {layout.pp} x dp {layout.dp} needs {layout.world_size} ranks,"
            f" and {world_size} were started"
        )
    for name, size in (("num_heads", model.num_heads), ("ffn_hidden_size", model.ffn_hidden_size)):
        if size % layout.tp:
            reasons.append(f"{name} {size} is not divisible by tp {layout.tp}")
    if model.num_heads % model.num_kv_heads:
        reasons.append(f"num_heads {model.num_heads} is not divisible by num_kv_heads {model.num_kv_heads}")
    if model.num_kv_heads % layout.tp and layout.tp % model.num_kv_heads:
        reasons.append(f"num_kv_heads {model.num_kv_heads} and tp {layout.tp}: one must divide the other")
    if -(-model.vocab_size // layout.tp) * (layout.tp - 1) >= model.vocab_size:
        reasons.append(f"vocab_size {model.vocab_size} leaves no row for the last of tp {layout.tp} ranks")
    if layout.pp > model.num_layers:
        reasons.append(f"pp {layout.pp} is more than num_layers {model.num_layers}")
    reasons += _interleaving_reasons(request)
    if model.position == "rope" and model.head_dim % 2:
        reasons.append(f"rotary positions need an even head_dim, not {model.head_dim}")
    return reasons


def _interleaving_reasons(request: RunRequest) -> list[str]:
    layout, num_layers = request.layout, request.model.num_layers
    if layout.virtual_stages == 1:
        return []
    if layout.pp == 1:
        return [f"virtual_stages {layout.virtual_stages} needs a pipeline, and pp is 1; set virtual_stages to 1"]
    reasons = []
    if layout.pp * layout.virtual_stages > num_layers:
        reasons.append(
            f"pp {layout.pp} x virtual_stages {layout.virtual_stages} is more than num_layers {num_layers};"
            f" set virtual_stages to {max(1, num_layers // layout.pp)} at most"
        )
    num_microbatches, rest = divmod(request.training.global_batch_size, layout.micro_batch_size * layout.dp)
    if rest == 0 and num_microbatches % layout.pp:
        reasons.append(
            f"{num_microbatches} micro-batches are no multiple of pp {layout.pp}, which virtual_stages"
            f" {layout.virtual_stages} needs; set virtual_stages to 1 or change micro_batch_size"
        )
    return reasons


def _batch_reasons(request: RunRequest) -> list[str]:
    layout, model, training = request.layout, request.model, request.training
    reasons = []
    if training.global_batch_size % (layout.micro_batch_size * layout.dp) or training.global_batch_size < 1:
        reasons.append(
            f"global_batch_size {training.global_batch_size} is not divisible by"
            f" micro_batch_size {layout.micro_batch_size} x dp {layout.dp}"
        )
    if training.seq_len > model.max_seq_len:
        reasons.append(f"seq_len {training.seq_len} is longer than the model's max_seq_len {model.max_seq_len}")
    if training.seq_len < 1 or request.steps.measured < 1 or request.steps.warmup < 0:
        reasons.append(
            f"seq_len {training.seq_len} and measured steps {request.steps.measured} must be at least 1,"
            f" warm-up steps {request.steps.warmup} at least 0"
        )
    return reasons


def expected_parameters(model: ModelShape) -> int:
    """Parameters of the model, by formula.

    Per layer, with hidden size h, a heads and k key and value heads of size e, MLP width f: h a e + 2 h k e + a e h for
    attention, 2 h f (3 h f gated) for the MLP, two norms of 2 h (LayerNorm) or h (RMSNorm), and with biases
    (a + 2k) e + h + f (2 f gated) + h. Then V h (twice if untied), s h if positions are learned, and the final norm.
    """
    h, f = model.hidden_size, model.ffn_hidden_size
    heads, kv_heads = model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim
    ups = 2 if model.gated_ffn else 1
    norm = 2 * h if model.norm == "layer" else h
    layer = 2 * h * heads + 2 * h * kv_heads + (ups + 1) * h * f + 2 * norm
    if model.biases:
        layer += heads + 2 * kv_heads + h + ups * f + h
    tables = model.vocab_size * h * (1 if model.tied_embeddings else 2)
    positions = model.max_seq_len * h if model.position == "learned" else 0
    return model.num_layers * layer + tables + positions + norm


def expected_built(request: RunRequest) -> Built:
    """What should have been built."""
    layout, training = request.layout, request.training
    return Built(
        num_layers=request.model.num_layers,
        num_parameters=expected_parameters(request.model),
        tp=layout.tp,
        pp=layout.pp,
        dp=layout.dp,
        num_microbatches=training.global_batch_size // (layout.micro_batch_size * layout.dp),
        tokens_per_step=training.global_batch_size * training.seq_len,
    )


def check_built(built: Built, request: RunRequest) -> None:
    """Raise MismatchError if something else was built."""
    expected = expected_built(request)
    if built != expected:
        raise MismatchError(f"built {built}, but the request means {expected}")
