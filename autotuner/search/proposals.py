"""What a proposer answers, and the sentence that tells a user why."""

from __future__ import annotations

import math
from dataclasses import dataclass

from autotuner.domain.estimate import Estimate
from autotuner.domain.parallel import ParallelConfig
from autotuner.domain.trial import TrialSource
from autotuner.domain.units import format_bytes, format_seconds
from autotuner.search.ranking import CandidateSet
from autotuner.search.surrogate import Scores


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """The layout to measure next; `reason` is one sentence with numbers.

    `expected_improvement` in log step time is infinite where no model was asked.
    """

    config: ParallelConfig
    source: TrialSource
    reason: str
    estimate: Estimate
    expected_improvement: float = math.inf


@dataclass(frozen=True, kw_only=True)
class Exhausted:
    """There is nothing left that is worth measuring, and why."""

    reason: str


def estimate_sentence(candidates: CandidateSet, index: int, *, lead: str) -> str:
    """`lead`, then time and memory by estimate."""
    seconds, fits = candidates.step_seconds[index], candidates.probability_fits[index]
    return f"{lead}: {format_seconds(float(seconds))} a step by estimate, {_memory(candidates, index, float(fits))}"


def model_sentence(candidates: CandidateSet, index: int, *, scores: Scores) -> str:
    """What the model expects of a candidate compared with the best so far."""
    ahead = 1.0 - math.exp(float(scores.log_seconds[index]) - scores.best_log_seconds)
    spread = float(scores.deviation[index])
    compared = f"{ahead:.1%} faster" if ahead >= 0 else f"{-ahead:.1%} slower"
    basis = "on top of the estimates" if scores.uses_estimates else "alone, as the estimates do not rank them"
    return (
        f"expected to be {compared} than the best so far (±{spread:.1%}),"
        f" {_memory(candidates, index, float(scores.probability_fits[index]))}; a model of {scores.points} measured"
        f" trial{'s' if scores.points > 1 else ''} {basis} gives it the highest expected improvement"
        f" ({float(scores.score[index]):.2%})"
    )


def _memory(candidates: CandidateSet, index: int, probability_fits: float) -> str:
    needed, device = float(candidates.memory_bytes[index]), candidates.job.cluster.device
    return f"{format_bytes(needed)} of {format_bytes(device.memory_bytes)}, {probability_fits:.0%} likely to fit"
