"""The cost model's front: layouts in, a table of estimates out.

Decides how memory becomes a probability of fitting and how layouts are ranked; time is `timing.py`'s and memory is
`memory.py`'s.  A table holds columns; a domain `Estimate` is made only for the rows that somebody looks at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from autotuner.costmodel.candidates import CandidateArrays, Ints
from autotuner.costmodel.flops import mfu
from autotuner.costmodel.memory import MemoryModel, StageBytes
from autotuner.costmodel.normal import normal_cdf
from autotuner.costmodel.software import BUNDLED, Software
from autotuner.costmodel.split import all_stages, representative_stages
from autotuner.costmodel.timing import StepParts, TimeModel
from autotuner.domain.cluster import ClusterSpec
from autotuner.domain.errors import InvalidInput
from autotuner.domain.estimate import Estimate, MemoryParts, StageMemory, TimeParts
from autotuner.domain.model import ModelSpec
from autotuner.domain.parallel import ParallelConfig
from autotuner.domain.workload import Workload

Floats = NDArray[np.float64]

# A layout that hardly fits still has a place in the order: behind all others, by its own time.
_LEAST_PROBABILITY = 1e-9


class Estimator:
    """Predicts step time and memory of layouts of one model and workload on one cluster.

    `memory_headroom` is the share of a device's memory that must stay free.  `software` says which training program
    is meant; the default is the bundled trainer.
    """

    def __init__(
        self,
        model: ModelSpec,
        workload: Workload,
        cluster: ClusterSpec,
        *,
        memory_headroom: float = 0.0,
        software: Software = BUNDLED,
    ) -> None:
        if not 0.0 <= memory_headroom < 1.0:
            raise InvalidInput(
                f"memory_headroom is {memory_headroom}; it is a share of at least 0 and less than 1",
                field="space.memory_headroom",
            )
        self.model, self.workload, self.cluster = model, workload, cluster
        self.memory_limit_bytes = cluster.device.memory_bytes * (1.0 - memory_headroom)
        self._time = TimeModel(model=model, workload=workload, cluster=cluster, software=software)
        self._memory = MemoryModel(model=model, workload=workload, cluster=cluster, software=software)

    def evaluate(self, candidates: Sequence[ParallelConfig] | CandidateArrays) -> EstimateTable:
        """Estimates of n layouts. Raises InvalidInput when a layout has more pipeline chunks than layers.

        Layouts are taken at their word: whether they fill the cluster and divide the batch is the search's question.
        """
        arrays = candidates if isinstance(candidates, CandidateArrays) else CandidateArrays.of(candidates)
        stages = representative_stages(arrays, num_layers=self.model.num_layers)
        timing = self._time.step(arrays, stages)
        step_seconds = timing.parts.total
        memory_bytes = self._memory.stage_bytes(arrays, stages).total.max(axis=1)
        return EstimateTable(
            estimator=self,
            candidates=arrays,
            parts=timing.parts,
            step_seconds=step_seconds,
            tokens_per_second=self.workload.tokens_per_step / step_seconds,
            bubble_fraction=timing.bubble_fraction,
            memory_bytes=memory_bytes,
            probability_fits=self.probability_fits(memory_bytes),
        )

    def estimate_one(self, config: ParallelConfig) -> Estimate:
        """One layout. Costs a few milliseconds: evaluate many at once instead of calling this in a loop."""
        return self.evaluate([config]).at(0)

    def probability_fits(self, memory_bytes: Floats) -> Floats:
        """P(memory <= limit) when log(memory) is normal around the estimate with deviation `memory_sigma`."""
        margin = np.log(self.memory_limit_bytes) - np.log(memory_bytes)
        return normal_cdf(margin / self.cluster.constants.memory_sigma)

    def stage_bytes(self, config: ParallelConfig) -> StageBytes:
        """Memory of every pipeline stage of one layout, fields [1, pp]."""
        stages = all_stages(pp=config.pp, virtual_stages=config.virtual_stages, num_layers=self.model.num_layers)
        return self._memory.stage_bytes(CandidateArrays.of([config]), stages)


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateTable:
    """Estimates of n layouts as columns [n]; `parts` sum to `step_seconds`, `memory_bytes` is the fullest stage's.

    `bubble_fraction` is the pipeline bubble over the pipeline's ideal time: (p - 1)/(m v) for equal stages.
    """

    estimator: Estimator
    candidates: CandidateArrays
    parts: StepParts
    step_seconds: Floats
    tokens_per_second: Floats
    bubble_fraction: Floats
    memory_bytes: Floats
    probability_fits: Floats

    def __len__(self) -> int:
        return len(self.candidates)

    def order(self) -> Ints:
        """Indices, best first: by throughput times the probability of fitting; ties keep the given order."""
        weighted = self.step_seconds / np.maximum(self.probability_fits, _LEAST_PROBABILITY)
        return np.argsort(weighted, kind="stable")

    def at(self, index: int) -> Estimate:
        """One row as a value, with the memory of every stage."""
        estimator, config = self.estimator, self.candidates.config(index)
        step_seconds = float(self.step_seconds[index])
        memory_bytes = float(self.memory_bytes[index])
        return Estimate(
            config=config,
            step_seconds=step_seconds,
            tokens_per_second=float(self.tokens_per_second[index]),
            mfu=mfu(estimator.model, estimator.workload, estimator.cluster, step_seconds=step_seconds),
            memory_bytes=memory_bytes,
            probability_fits=float(self.probability_fits[index]),
            fits=memory_bytes <= estimator.memory_limit_bytes,
            sigma=estimator.cluster.constants.time_sigma,
            bubble_fraction=float(self.bubble_fraction[index]),
            time=TimeParts(
                **{field.name: float(getattr(self.parts, field.name)[index]) for field in fields(StepParts)}
            ),
            memory=_stage_memories(estimator, config),
        )


def _stage_memories(estimator: Estimator, config: ParallelConfig) -> tuple[StageMemory, ...]:
    stages = all_stages(pp=config.pp, virtual_stages=config.virtual_stages, num_layers=estimator.model.num_layers)
    found = estimator.stage_bytes(config)
    totals = found.total
    return tuple(
        StageMemory(
            stage=stage,
            num_layers=int(stages.layers[0, stage]),
            total_bytes=float(totals[0, stage]),
            parts=MemoryParts(
                **{field.name: float(getattr(found, field.name)[0, stage]) for field in fields(StageBytes)}
            ),
        )
        for stage in range(config.pp)
    )
