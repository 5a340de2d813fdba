"""A 3D-parallel layout and the batch arithmetic that follows from it (this file is that arithmetic's only owner)."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from autotuner.domain.base import BatchSize, Value

Recompute = Literal["none", "selective", "full"]
Schedule = Literal["no_pipeline", "1f1b", "interleaved_1f1b"]
Degree = Annotated[int, Field(gt=0, le=65_536)]


def is_batch_divisible(*, global_batch_size: int, micro_batch_size: int, dp: int) -> bool:
    """Whether a global batch is a whole number of micro-batches on each of `dp` replicas."""
    return global_batch_size % (micro_batch_size * dp) == 0


class ParallelConfig(Value):
    """tp x pp x dp (x cp) ranks, and what changes memory and time without changing the model.

    Ranks are ordered tp fastest, then cp, dp, pp (Megatron-LM's default order tp-cp-ep-dp-pp): tensor parallel peers
    are neighbours, pipeline stages are far apart.
    """

    tp: Degree = 1
    pp: Degree = 1
    dp: Degree = 1
    cp: Degree = 1
    ep: Degree = 1
    virtual_stages: Annotated[int, Field(gt=0, le=1024)] = 1
    micro_batch_size: BatchSize = 1
    sequence_parallel: bool = False
    zero_stage: Annotated[int, Field(ge=0, le=3)] = 0
    recompute: Recompute = "none"
    overlap_grad_reduce: bool = False
    overlap_param_gather: bool = False

    @model_validator(mode="after")
    def _virtual(self) -> Self:
        if self.virtual_stages > 1 and self.pp == 1:
            raise ValueError(
                f"virtual_stages {self.virtual_stages} needs pp of at least 2, not 1; use virtual_stages 1"
            )
        return self

    @property
    def world_size(self) -> int:
        """Ranks in all; expert parallel ranks are folded into these."""
        return self.tp * self.pp * self.dp * self.cp

    @property
    def schedule(self) -> Schedule:
        """The pipeline schedule that the sizes imply."""
        if self.pp == 1:
            return "no_pipeline"
        return "interleaved_1f1b" if self.virtual_stages > 1 else "1f1b"

    def num_microbatches(self, global_batch_size: int) -> int:
        """Micro-batches that one pipeline runs per step. Raises ValueError if the batch does not divide."""
        if not is_batch_divisible(
            global_batch_size=global_batch_size, micro_batch_size=self.micro_batch_size, dp=self.dp
        ):
            raise ValueError(
                f"global_batch_size {global_batch_size} is not divisible by micro_batch_size"
                f" {self.micro_batch_size} x dp {self.dp}"
            )
        return global_batch_size // (self.micro_batch_size * self.dp)

    def key(self) -> str:
        """A short stable name: sizes always, switches only where they are not the default."""
        parts = [f"tp{self.tp}", f"pp{self.pp}", f"dp{self.dp}", f"mb{self.micro_batch_size}"]
        optional = (
            (self.cp > 1, f"cp{self.cp}"),
            (self.ep > 1, f"ep{self.ep}"),
            (self.virtual_stages > 1, f"vs{self.virtual_stages}"),
            (self.sequence_parallel, "sp"),
            (self.zero_stage > 0, f"z{self.zero_stage}"),
            (self.recompute != "none", f"rc-{self.recompute}"),
            (self.overlap_grad_reduce, "og"),
            (self.overlap_param_gather, "op"),
        )
        return "-".join(parts + [text for on, text in optional if on])
