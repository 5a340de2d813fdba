"""The time of one step of many layouts, put together from compute, communication, pipeline and optimizer.

Decides what is on the critical path and which part a second belongs to; every formula is in its own module.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from autotuner.costmodel.candidates import CandidateArrays
from autotuner.costmodel.dataparallel import (
    Windows,
    exposed_gradient_seconds,
    optimizer_seconds,
    tied_embedding_seconds,
)
from autotuner.costmodel.pipeline import (
    PipelineSeconds,
    bubble_fraction,
    exposed_message_seconds,
    pipeline_seconds,
)
from autotuner.costmodel.rates import Rates, compute_share, rates_of, spare_slots
from autotuner.costmodel.software import Software
from autotuner.costmodel.split import StageColumns
from autotuner.costmodel.stagetimes import StageSeconds, stage_seconds
from autotuner.costmodel.topology import Topology, topology_of
from autotuner.domain.cluster import ClusterSpec
from autotuner.domain.model import ModelSpec
from autotuner.domain.workload import Workload

Floats = NDArray[np.float64]

# Operations of one step that belong to no layer: data, clearing, norm, clipping, optimizer, loss.
_STEP_OPERATIONS = 40
# Every doubling of the ranks makes the step wait for a slower slowest one: 0.5 % in weak-scaling tables.
_STRAGGLER_SHARE = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class StepParts:
    """Seconds of one step, every field [n]; names as in the domain's TimeParts, whose sum is the step."""

    compute: Floats
    recompute: Floats
    tp_communication: Floats
    pp_communication: Floats
    dp_communication: Floats
    bubble: Floats
    optimizer: Floats
    overhead: Floats

    @property
    def total(self) -> Floats:
        """Sum of the parts."""
        total: Floats = np.add.reduce([getattr(self, field.name) for field in fields(self)])
        return total

    def scaled(self, factor: Floats) -> StepParts:
        """Every part times `factor` [n]."""
        return StepParts(**{field.name: getattr(self, field.name) * factor for field in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTiming:
    """Parts of the step and the pipeline's bubble relative to its ideal time, [n]."""

    parts: StepParts
    bubble_fraction: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class _World:
    """What the formulas of one evaluation share."""

    rates: Rates
    topology: Topology
    spare: Floats
    microbatches: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeModel:
    """The time of one model and workload on one cluster under one training program."""

    model: ModelSpec
    workload: Workload
    cluster: ClusterSpec
    software: Software

    def step(self, candidates: CandidateArrays, stages: StageColumns) -> StepTiming:
        """The step of n layouts; `stages` are the first, second and last of each, [n, 3]."""
        world = _World(
            rates=rates_of(self.cluster, precision=self.workload.precision),
            topology=topology_of(candidates, self.cluster),
            spare=spare_slots(self.cluster, world_size=candidates.world_size),
            microbatches=self.workload.global_batch_size / (candidates.micro_batch_size * candidates.dp),
        )
        stage = stage_seconds(
            self.model,
            candidates,
            stages,
            seq_len=self.workload.seq_len,
            rates=world.rates,
            topology=world.topology,
            software=self.software,
            spare=world.spare,
        )
        pipeline = pipeline_seconds(
            microbatches=world.microbatches,
            pp=candidates.pp,
            virtual_stages=candidates.virtual_stages,
            slowest=stage.of_slowest(stage.total),
            all_stages=stage.all_stages,
        )
        parts = self._parts(candidates, stages, stage=stage, pipeline=pipeline, world=world)
        waiting = pipeline.busy + pipeline.bubble - pipeline.average_busy
        share = compute_share(self.cluster, world_size=candidates.world_size, activity=1.0 - waiting / parts.total)
        return StepTiming(
            parts=parts.scaled(1.0 / share),
            bubble_fraction=bubble_fraction(bubble=pipeline.bubble, busy=pipeline.busy),
        )

    def _parts(
        self,
        candidates: CandidateArrays,
        stages: StageColumns,
        *,
        stage: StageSeconds,
        pipeline: PipelineSeconds,
        world: _World,
    ) -> StepParts:
        """At full speed: ranks that share cores are not slowed down yet."""
        parts = StepParts(
            compute=world.microbatches * stage.of_slowest(stage.compute),
            recompute=world.microbatches * stage.of_slowest(stage.recompute),
            tp_communication=world.microbatches * stage.of_slowest(stage.traffic),
            pp_communication=self._messages(candidates, world=world),
            dp_communication=self._gradients(candidates, stages, stage=stage, world=world),
            bubble=pipeline.bubble,
            optimizer=self._optimizer(candidates, stage=stage, world=world),
            overhead=np.zeros(len(candidates)),
        )
        return self._with_overhead(candidates, parts, world=world)

    def _messages(self, candidates: CandidateArrays, *, world: _World) -> Floats:
        return exposed_message_seconds(
            self.model,
            candidates,
            seq_len=self.workload.seq_len,
            element_bytes=world.rates.element_bytes,
            microbatches=world.microbatches,
            link=world.topology.pipeline,
            tensor_link=world.topology.tensor,
            software=self.software,
            spare=world.spare,
        )

    def _gradients(
        self, candidates: CandidateArrays, stages: StageColumns, *, stage: StageSeconds, world: _World
    ) -> Floats:
        states = self.software.states[self.workload.precision]
        layers = stages.layers.max(axis=1).astype(np.float64)
        exposed = exposed_gradient_seconds(
            candidates,
            parameters=stage.fullest,
            states=states,
            weight_bytes=self._weight_bytes,
            microbatches=world.microbatches,
            topology=world.topology,
            windows=Windows(
                forward=layers * stage.layer.forward, backward=layers * stage.layer.backward, layers=layers
            ),
            spare=world.spare,
        )
        if not self.model.tied_embeddings:
            return exposed
        table = np.ceil(self.model.vocab_size / candidates.tp) * self.model.hidden_size
        return exposed + tied_embedding_seconds(
            candidates, table_elements=table, gradient_bytes=states.gradients, link=world.topology.ends
        )

    def _optimizer(self, candidates: CandidateArrays, *, stage: StageSeconds, world: _World) -> Floats:
        return optimizer_seconds(
            candidates,
            parameters=stage.fullest,
            states=self.software.states[self.workload.precision],
            weight_bytes=self._weight_bytes,
            memory_bytes_per_second=world.rates.memory_bytes_per_second,
        )

    def _with_overhead(self, candidates: CandidateArrays, parts: StepParts, *, world: _World) -> StepParts:
        """Issuing what belongs to no layer, the norm's one small sum over all ranks, and stragglers."""
        small_sum = world.topology.all.seconds("all_reduce", num_bytes=4.0, participants=candidates.world_size)
        fixed = _STEP_OPERATIONS * world.rates.launch_seconds + small_sum
        stragglers = _STRAGGLER_SHARE * np.log2(candidates.world_size) * (parts.total + fixed)
        values = {field.name: getattr(parts, field.name) for field in fields(parts)}
        return StepParts(**(values | {"overhead": fixed + stragglers}))

    @property
    def _weight_bytes(self) -> int:
        return 4 if self.workload.precision == "fp32" else 2
