"""How the model is trained: sequence length, batch, precision and optimizer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from autotuner.domain.base import BatchSize, Dimension, Value

Precision = Literal["fp32", "bf16", "fp16", "fp8"]


class OptimizerSpec(Value):
    """AdamW with clipping of the gradient norm over all parameters; `clip_norm` 0 switches clipping off."""

    kind: Literal["adamw"] = "adamw"
    learning_rate: Annotated[float, Field(gt=0, le=10)] = 3e-4
    weight_decay: Annotated[float, Field(ge=0, le=10)] = 0.1
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.95
    epsilon: Annotated[float, Field(gt=0, le=1)] = 1e-8
    clip_norm: Annotated[float, Field(ge=0, le=1e6)] = 1.0


class Workload(Value):
    """One optimizer step consumes `global_batch_size` sequences of `seq_len` tokens."""

    seq_len: Dimension
    global_batch_size: BatchSize
    precision: Precision = "bf16"
    optimizer: OptimizerSpec = OptimizerSpec()

    @property
    def tokens_per_step(self) -> int:
        """Tokens that one optimizer step consumes."""
        return self.seq_len * self.global_batch_size
