"""What a job's answer looks like: the best layout with what it is compared to, and a ranking by estimate."""

from __future__ import annotations

from typing import Annotated

from autotuner.domain.base import Lax, Value
from autotuner.domain.estimate import Estimate
from autotuner.domain.measurement import StepSeconds
from autotuner.domain.parallel import ParallelConfig
from autotuner.domain.rejection import Rejection


class Compared(Value):
    """Another measured layout beside the winner. `relation` says what it is: "your baseline", "the naive layout"."""

    relation: str
    trial_id: str
    config: ParallelConfig
    tokens_per_second: float
    step_seconds: StepSeconds
    peak_memory_bytes: int


class TrialCounts(Value):
    """How the job's trials ended; failed ones by kind."""

    succeeded: int
    failed: dict[str, int]


class BestResult(Value):
    """The body of `GET /jobs/{id}/best`."""

    job_id: str
    trial_id: str
    config: ParallelConfig
    tokens_per_second: float
    tokens_per_second_per_device: float
    step_seconds: StepSeconds
    mfu: float | None
    peak_memory_bytes: int
    baseline: Compared | None
    speedup_over_baseline: float | None
    runner_up: Compared | None
    certainty: str
    stopped_because: str
    estimate: Estimate | None
    trials: TrialCounts


class EstimateReport(Value):
    """The body of `POST /estimates` and of `autotuner estimate --json`: candidates ranked best first.

    `parameters` is the model's exact parameter count, so that a wrong reading of a model is noticed.
    """

    candidates: int
    parameters: int
    rejections: dict[str, int]
    examples: Annotated[tuple[Rejection, ...], Lax]
    ranked: Annotated[tuple[RankedEstimate, ...], Lax]


class RankedEstimate(Value):
    """One line of the ranking: the estimate with its layout's key and its parts summed up."""

    key: str
    config: ParallelConfig
    step_seconds: float
    tokens_per_second: float
    mfu: float | None
    memory_bytes: float
    probability_fits: float
    time: dict[str, float]
    memory: dict[str, float]

    @classmethod
    def of(cls, estimate: Estimate) -> RankedEstimate:
        """The line of one estimate; `memory` is that of the stage with the highest peak."""
        fullest = max(estimate.memory, key=lambda stage: stage.total_bytes)
        return cls(
            key=estimate.config.key(),
            config=estimate.config,
            step_seconds=estimate.step_seconds,
            tokens_per_second=estimate.tokens_per_second,
            mfu=estimate.mfu,
            memory_bytes=estimate.memory_bytes,
            probability_fits=estimate.probability_fits,
            time=estimate.time.as_json(),
            memory=fullest.parts.as_json(),
        )


EstimateReport.model_rebuild()
