"""Small run requests for the trainer's tests: GPT-2's and Llama's dialect of one tiny model.

12 heads of 4 let tp be 1, 2, 3 and 4, and make heads x head_dim (48) differ from the hidden size (40); 5 layers do not
divide over 2, 3 or 4 stages; 131 tokens do not divide over 2, 3 or 4 ranks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from trials.contract import (
    REQUEST_SCHEMA,
    Data,
    Layout,
    ModelShape,
    Resources,
    RunRequest,
    Steps,
    Training,
)

GPT2 = ModelShape(
    num_layers=5,
    hidden_size=40,
    num_heads=12,
    num_kv_heads=12,
    head_dim=4,
    ffn_hidden_size=96,
    gated_ffn=False,
    vocab_size=131,
    max_seq_len=16,
    tied_embeddings=True,
    norm="layer",
    position="learned",
    biases=True,
)
LLAMA = replace(
    GPT2,
    num_kv_heads=2,
    ffn_hidden_size=72,
    gated_ffn=True,
    tied_embeddings=False,
    norm="rms",
    position="rope",
    biases=False,
)


def layout(
    tp: int = 1,
    pp: int = 1,
    dp: int = 1,
    *,
    micro_batch_size: int = 1,
    recompute: Literal["none", "selective", "full"] = "none",
    virtual_stages: int = 1,
    sequence_parallel: bool = False,
    zero_stage: int = 0,
) -> Layout:
    """A layout without anything switched on that is not asked for."""
    return Layout(
        tp=tp,
        pp=pp,
        dp=dp,
        virtual_stages=virtual_stages,
        micro_batch_size=micro_batch_size,
        sequence_parallel=sequence_parallel,
        zero_stage=zero_stage,
        recompute=recompute,
    )


def run_request_for(model: ModelShape = GPT2, shape: Layout | None = None, *, measured: int = 3) -> RunRequest:
    """One warm-up step and `measured` more of 12 sequences of 16 bytes from the bundled corpus."""
    return RunRequest(
        schema=REQUEST_SCHEMA,
        run_id="run-1",
        model=model,
        layout=shape or layout(),
        training=Training(
            seq_len=16,
            global_batch_size=12,
            precision="fp32",
            learning_rate=3e-3,
            weight_decay=0.1,
            beta1=0.9,
            beta2=0.95,
            epsilon=1e-6,  # not smaller: AdamW would turn rounding of gradients that are 0 into whole steps
            clip_norm=1.0,
            seed=7,
        ),
        data=Data(kind="bundled", path=""),
        steps=Steps(warmup=1, measured=measured, abort_above_step_seconds=None),
        resources=Resources(device="cpu", memory_limit_bytes=None, threads_per_rank=1, collective_timeout_seconds=30.0),
    )
