"""The candidates of a job with their estimates: what is left after the memory rule, in which order, and by what name.

Decides which layouts surely do not fit, the order by estimate, and the naive layout.  How an estimate is made is the
cost model's business; which candidate is measured next is the proposer's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from autotuner.costmodel.estimator import Estimator
from autotuner.domain.base import DERIVE
from autotuner.domain.capabilities import Capabilities
from autotuner.domain.errors import InvalidInput
from autotuner.domain.estimate import Estimate
from autotuner.domain.job import TuningJob
from autotuner.domain.parallel import ParallelConfig
from autotuner.domain.rejection import Rejection
from autotuner.domain.units import format_bytes
from autotuner.search.columns import Columns, FloatArray, IntArray, columns_of
from autotuner.search.dominance import needless_recompute, recompute_rejection
from autotuner.search.enumerate import Enumeration, enumerate_layouts, require_feasible
from autotuner.search.feasibility import check

# A layout that fits with less than even odds is no fair comparison: the naive user would have seen it fail.
_NAIVE_PROBABILITY_FITS = 0.5


class EstimateArrays(Protocol):
    """Estimates of many layouts (shape of each array: [layouts])."""

    @property
    def step_seconds(self) -> FloatArray: ...
    @property
    def memory_bytes(self) -> FloatArray: ...
    @property
    def probability_fits(self) -> FloatArray: ...
    def at(self, index: int, /) -> Estimate:
        """One estimate in full."""
        ...


class LayoutEstimator(Protocol):
    """What the ranking needs of a cost model."""

    def evaluate(self, configs: Sequence[ParallelConfig], /) -> EstimateArrays:
        """Estimates in the order of `configs`."""
        ...

    def estimate_one(self, config: ParallelConfig, /) -> Estimate:
        """One estimate in full."""
        ...


@dataclass(frozen=True, kw_only=True)
class CandidateSet:
    """Feasible layouts with estimates. `rows[i]` is the place of `configs[i]` in `table`, which also holds the misfits.

    `rejections` counts what was refused by rule, memory included; `examples` has one rejection of each rule.
    """

    job: TuningJob
    configs: tuple[ParallelConfig, ...]
    rows: IntArray
    table: EstimateArrays
    estimator: LayoutEstimator
    rejections: dict[str, int]
    examples: tuple[Rejection, ...]

    @classmethod
    def build(cls, job: TuningJob, *, capabilities: Capabilities) -> CandidateSet:
        """Enumerate and estimate. Raises InvalidInput for an absurdly large space or a baseline that cannot run."""
        if job.baseline is not None:
            rejection = check(job.baseline, job=job, capabilities=capabilities)
            if rejection is not None:
                raise InvalidInput(f"baseline: {rejection.message}; {rejection.fix}", field="baseline")
        estimator = Estimator(job.model, job.workload, job.cluster, memory_headroom=job.space.memory_headroom)
        return cls.of(enumerate_layouts(job, capabilities=capabilities), job=job, estimator=estimator)

    @classmethod
    def of(cls, enumeration: Enumeration, *, job: TuningJob, estimator: LayoutEstimator) -> CandidateSet:
        """Score an enumeration and drop what surely does not fit (`space.min_probability_fits`)."""
        table = estimator.evaluate(enumeration.candidates)
        probability = np.asarray(table.probability_fits, dtype=np.float64)
        fits = probability >= job.space.min_probability_fits
        rows = np.flatnonzero(fits).astype(np.int64)
        rejections, examples = dict(enumeration.rejections), enumeration.examples
        misfits = len(enumeration.candidates) - len(rows)
        if misfits:
            least = int(np.argmin(np.where(fits, np.inf, table.memory_bytes)))
            rejections["memory"] = misfits
            examples = (*examples, _too_large(enumeration.candidates[least], job, float(table.memory_bytes[least])))
        if job.space.recompute == DERIVE and len(rows):
            needless = needless_recompute(
                columns_of([enumeration.candidates[i] for i in rows]), probability_fits=probability[rows]
            )
            if needless.any():
                first = int(rows[np.argmax(needless)])
                rejections["recompute_not_needed"] = int(np.count_nonzero(needless))
                example = recompute_rejection(enumeration.candidates[first], probability_fits=float(probability[first]))
                examples, rows = (*examples, example), rows[~needless]
        return cls(
            job=job,
            configs=tuple(enumeration.candidates[i] for i in rows),
            rows=rows,
            table=table,
            estimator=estimator,
            rejections=rejections,
            examples=examples,
        )

    def __len__(self) -> int:
        return len(self.configs)

    def require_feasible(self) -> None:
        """Raises NoFeasibleLayout when nothing is left."""
        left = Enumeration(candidates=self.configs, rejections=self.rejections, examples=self.examples)
        require_feasible(left, self.job)

    @cached_property
    def step_seconds(self) -> FloatArray:
        """Estimated seconds of one step (shape: [candidates])."""
        return np.asarray(self.table.step_seconds, dtype=np.float64)[self.rows]

    @cached_property
    def memory_bytes(self) -> FloatArray:
        """Estimated peak of the fullest stage (shape: [candidates])."""
        return np.asarray(self.table.memory_bytes, dtype=np.float64)[self.rows]

    @cached_property
    def probability_fits(self) -> FloatArray:
        """Estimated probability of fitting (shape: [candidates])."""
        return np.asarray(self.table.probability_fits, dtype=np.float64)[self.rows]

    @cached_property
    def columns(self) -> Columns:
        """The candidates as arrays."""
        return columns_of(self.configs)

    @cached_property
    def keys(self) -> dict[str, int]:
        """The index of each candidate by `ParallelConfig.key()`."""
        return {config.key(): index for index, config in enumerate(self.configs)}

    @cached_property
    def ranking(self) -> IntArray:
        """Indices, best first, see `ranked` (shape: [candidates])."""
        return ranked(self.step_seconds, probability_fits=self.probability_fits)

    def order(self) -> list[int]:
        """`ranking` as plain integers."""
        return [int(index) for index in self.ranking]

    def estimate_at(self, index: int) -> Estimate:
        """The full estimate of one candidate."""
        return self.table.at(int(self.rows[index]))

    def estimate_of(self, config: ParallelConfig) -> Estimate:
        """The full estimate of any layout, candidate or not (a user's baseline may lie outside the space)."""
        index = self.keys.get(config.key())
        return self.estimator.estimate_one(config) if index is None else self.estimate_at(index)

    def naive_index(self) -> int:
        """The candidate that one would run without a tuner: what gains are measured against.

        tp as large as a node allows, then the fewest stages that fit, micro-batch 1 and nothing switched on.  Where
        the space or the memory rules that out, the candidate with the fewest switches on.  Raises ValueError when
        there is no candidate.
        """
        if not self.configs:
            raise ValueError("there is no candidate, so there is no naive layout")
        c, devices = self.columns, self.job.cluster.devices_per_node
        surely_fits = self.probability_fits >= _NAIVE_PROBABILITY_FITS
        misfit = np.where(surely_fits, 0.0, 1.0 - self.probability_fits)
        sizes_on = (c.cp > 1).astype(int) + (c.ep > 1) + (c.virtual_stages > 1)
        switches = sizes_on + c.sequence_parallel + (c.zero_stage > 0) + (c.recompute > 0)
        beyond_node = (c.tp > devices).astype(int)
        # lexsort takes its most important key last.
        priority = (c.recompute, c.zero_stage, c.micro_batch_size, c.pp, -c.tp, beyond_node, switches, misfit)
        return int(np.lexsort(priority)[0])


def ranked(step_seconds: FloatArray, *, probability_fits: FloatArray) -> IntArray:
    """Indices by step time over the probability of fitting, as a layout that does not fit costs a trial for nothing."""
    expected = step_seconds / np.maximum(probability_fits, 1e-9)
    return np.argsort(expected, kind="stable").astype(np.int64)


def _too_large(config: ParallelConfig, job: TuningJob, needed_bytes: float) -> Rejection:
    usable = job.cluster.device.memory_bytes * (1.0 - job.space.memory_headroom)
    return Rejection(
        rule="memory",
        message=(
            f"the smallest of the layouts that do not fit, {config.key()}, needs {format_bytes(needed_bytes)} by"
            f" estimate and a device has {format_bytes(usable)}"
        ),
        values={"needed_bytes": round(needed_bytes), "usable_bytes": round(usable)},
        fix=(
            f"use devices with at least {format_bytes(needed_bytes)}, {-(-round(needed_bytes) // round(usable))} times"
            " as many of them, a smaller micro_batch_size, recompute full or a higher zero_stage"
        ),
        config_key=config.key(),
    )
