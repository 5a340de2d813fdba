"""Peak bytes of one rank, stage by stage: weights, gradients, optimizer, activations in flight, logits, buffers.

Symbols as in `compute.py`; E is the bytes of one activation element (2 or 4).  Decides what is alive at the peak; the
allocator's waste and the device context are two constants of the system, because no formula gives them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotuner.costmodel.candidates import FULL_RECOMPUTE, SELECTIVE_RECOMPUTE, CandidateArrays
from autotuner.costmodel.params import layer_parameters, rank_parameters
from autotuner.costmodel.rates import ELEMENT_BYTES
from autotuner.costmodel.software import Software
from autotuner.costmodel.split import StageColumns
from autotuner.domain.cluster import ClusterSpec
from autotuner.domain.model import ModelSpec
from autotuner.domain.workload import Workload

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageBytes:
    """Bytes of one rank of each stage, every field [n, stages]; names as in the domain's MemoryParts.

    `context` holds the device context and what the allocator wastes.
    """

    weights: Floats
    gradients: Floats
    optimizer: Floats
    activations: Floats
    logits: Floats
    buffers: Floats
    context: Floats

    @property
    def total(self) -> Floats:
        """Sum of the parts."""
        total: Floats = np.add.reduce([getattr(self, field.name) for field in fields(self)])
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryModel:
    """The memory of one model and workload on one cluster under one training program."""

    model: ModelSpec
    workload: Workload
    cluster: ClusterSpec
    software: Software

    def stage_bytes(self, candidates: CandidateArrays, stages: StageColumns) -> StageBytes:
        """Bytes of the given stages [n, stages] of n layouts."""
        layers = stages.layers.astype(np.float64)
        weights, gradients, optimizer = self._states(candidates, stages)
        per_layer = self._kept_per_layer(candidates)
        activations = layers * per_layer * self._in_flight(candidates, stages)
        logits = self._logits(candidates, stages)
        buffers = np.broadcast_to(self._buffers(candidates), layers.shape)
        alive = weights + gradients + optimizer + activations + logits + buffers
        constants = self.cluster.constants
        return StageBytes(
            weights=weights,
            gradients=gradients,
            optimizer=optimizer,
            activations=activations,
            logits=logits,
            buffers=buffers,
            context=constants.context_bytes + (constants.fragmentation - 1.0) * alive,
        )

    @property
    def _element_bytes(self) -> int:
        return ELEMENT_BYTES[self.workload.precision]

    def _tokens(self, candidates: CandidateArrays) -> Floats:
        tokens: Floats = candidates.micro_batch_size * (self.workload.seq_len / candidates.cp)
        return tokens

    def _states(self, candidates: CandidateArrays, stages: StageColumns) -> tuple[Floats, Floats, Floats]:
        held = rank_parameters(
            self.model,
            layers=stages.layers,
            is_first=stages.is_first,
            is_last=stages.is_last,
            tp=_column(candidates.tp),
            ep=_column(candidates.ep),
        )
        states = self.software.states[self.workload.precision]
        replicas = _column(candidates.dp * candidates.cp)
        expert_replicas = np.maximum(1, replicas // _column(candidates.ep))
        zero = _column(candidates.zero_stage)

        def spread(bytes_per_parameter: float, *, from_stage: int) -> Floats:
            dense = held.dense / np.where(zero >= from_stage, replicas, 1)
            expert = held.expert / np.where(zero >= from_stage, expert_replicas, 1)
            total: Floats = bytes_per_parameter * (dense + expert)
            return total

        return (
            spread(states.weights, from_stage=3),
            spread(states.gradients, from_stage=2),
            spread(states.optimizer, from_stage=1),
        )

    def _kept_per_layer(self, candidates: CandidateArrays) -> Any:
        """Activations that one layer keeps for one micro-batch, [n, 1]."""
        kept = layer_activation_bytes(
            self.model,
            candidates,
            seq_len=self.workload.seq_len,
            element_bytes=self._element_bytes,
            software=self.software,
        )
        return _column(kept)

    def _in_flight(self, candidates: CandidateArrays, stages: StageColumns) -> Floats:
        microbatches = self.workload.global_batch_size / (candidates.micro_batch_size * candidates.dp)
        return microbatches_in_flight(
            microbatches=_column(microbatches),
            pp=_column(candidates.pp),
            virtual_stages=_column(candidates.virtual_stages),
            stage=stages.index,
        )

    def _logits(self, candidates: CandidateArrays, stages: StageColumns) -> Floats:
        """Logits and loss, and the input and output of the final norm with its gradient."""
        tokens, h, element = self._tokens(candidates), self.model.hidden_size, self._element_bytes
        vocabulary = np.ceil(self.model.vocab_size / candidates.tp)
        per_logit = self.software.logits_bytes_per_element[element]
        elements = tokens * vocabulary
        if self.software.logits_block_bytes is not None:
            cpu, accelerator = self.software.logits_block_bytes
            block = cpu if self.cluster.device.kind == "cpu" else accelerator
            elements = np.minimum(elements, np.maximum(block / 4.0, 128 * vocabulary))
        logits: Floats = stages.is_last * _column(elements * per_logit + 3.0 * element * tokens * h)
        return logits

    def _buffers(self, candidates: CandidateArrays) -> Any:
        """What lives shortly: messages between stages, gradients inside the layer in progress, gathered inputs and
        weights, and with full recomputation the layer's own activations, [n, 1]."""
        tokens, h, element = self._tokens(candidates), self.model.hidden_size, self._element_bytes
        tp = candidates.tp
        hidden = element * tokens * h
        local = np.where(candidates.sequence_parallel, hidden / tp, hidden)
        messages = np.where(candidates.pp > 1, 2.0 * local, 0.0)
        width = self.model.ffn_hidden_size * (2 if self.model.gated_ffn else 1)
        working = 2.0 * hidden + element * tokens * width / tp
        everything = layer_activation_bytes(
            self.model,
            candidates,
            seq_len=self.workload.seq_len,
            element_bytes=element,
            software=self.software,
            keep_all=True,
        )
        working = working + np.where(candidates.recompute == FULL_RECOMPUTE, everything, 0.0)
        layer = layer_parameters(self.model)
        whole = element * ((layer.dense_sharded + layer.kv_sharded) / tp + layer.expert_sharded / (tp * candidates.ep))
        gathered = np.where((candidates.zero_stage == 3) & (candidates.dp * candidates.cp > 1), 2.0 * whole, 0.0)
        return _column(messages + working + gathered)


def layer_activation_bytes(
    model: ModelSpec,
    candidates: CandidateArrays,
    *,
    seq_len: int,
    element_bytes: int,
    software: Software,
    keep_all: bool = False,
) -> Floats:
    """What one layer keeps of one micro-batch for its backward pass, [n] bytes (Korthikanti et al. 2022, section 4).

    For a GPT-2 style layer in 16 bit with dropout and an unfused core: sbh (10 + 24/t + 5as/ht), with sequence
    parallelism sbh/t (34 + 5as/h); selective recomputation or a fused core drops 5as; full keeps the input, 2sbh.
    `keep_all` ignores recomputation (the working set of the layer being recomputed).
    """
    tokens, h, tp = candidates.micro_batch_size * (seq_len / candidates.cp), model.hidden_size, candidates.tp
    along = np.where(candidates.sequence_parallel, tp, 1)
    # Inputs of both norms and of both column-parallel products, and two dropout masks of one byte.
    outside = tokens * h * (4.0 * element_bytes + (2.0 if software.dropout else 0.0)) / along
    key_values = model.num_kv_heads / np.minimum(tp, model.num_kv_heads)
    core = element_bytes * tokens * model.head_dim * (2.0 * model.num_heads / tp + 2.0 * key_values)
    inside = core + element_bytes * tokens * _mlp_width(model, software=software) / tp
    scores = _score_bytes(model, candidates, tokens=tokens, seq_len=seq_len, element=element_bytes, software=software)
    if keep_all:
        return outside + inside + scores
    dropped = candidates.recompute == SELECTIVE_RECOMPUTE
    kept = outside + inside + np.where(dropped, 0.0, scores)
    return np.where(candidates.recompute == FULL_RECOMPUTE, element_bytes * tokens * h / along, kept)


def _mlp_width(model: ModelSpec, *, software: Software) -> float:
    """Elements per token between the MLP's products: input and output of the activation, or of the gate."""
    tensors = software.gated_mlp_tensors if model.gated_ffn else 2
    if model.moe is None:
        return float(tensors * model.ffn_hidden_size)
    # Every chosen expert has its own copy of the token too.
    chosen = model.moe.experts_per_token
    return float(chosen * (tensors * model.moe.expert_ffn_hidden_size + model.hidden_size))


def _score_bytes(
    model: ModelSpec, candidates: CandidateArrays, *, tokens: Floats, seq_len: int, element: int, software: Software
) -> Floats:
    """Softmax output, and with dropout its mask and output; a fused core keeps one fp32 sum per row instead."""
    rows = tokens * model.num_heads / candidates.tp
    if software.flash_attention:
        return 4.0 * rows
    return rows * seq_len * ((2.0 * element + 1.0) if software.dropout else float(element))


def microbatches_in_flight(*, microbatches: Any, pp: Any, virtual_stages: Any, stage: Any) -> Floats:
    """Micro-batches whose activations a stage (0-based) holds at its fullest, in units of the stage's whole layers.

    1F1B: min(m, p - i).  Interleaved: 2(p - i - 1) + (v - 1)p + 1 chunks of 1/v stage each; on the first stage that
    is p (1 + (p - 1)/(pv)) (Korthikanti et al. 2022, section 4.2.3).  Without a pipeline one.
    """
    plain = np.minimum(microbatches, pp - stage)
    chunks = 2 * (pp - stage - 1) + (virtual_stages - 1) * pp + 1
    interleaved = np.minimum(microbatches * virtual_stages, chunks) / virtual_stages
    held: Floats = np.where(virtual_stages > 1, interleaved, plain).astype(np.float64)
    return held


def _column(values: Any) -> Any:
    return np.asarray(values)[:, np.newaxis]
