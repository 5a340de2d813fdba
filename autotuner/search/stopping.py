"""When a search ends, which trials lead, and when a running trial may end early.

Decides from numbers only; what a stop leads to is the worker's business.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from autotuner.domain.job import TuningJob
from autotuner.domain.objective import Objective
from autotuner.domain.trial import Trial
from autotuner.domain.units import format_seconds
from autotuner.search.columns import FloatArray

StopKind = Literal["max_trials", "max_seconds", "max_device_seconds", "patience", "exhausted", "little_to_gain"]

# From so many measurements on, their order may contradict the estimates'.
MIN_CALIBRATION_TRIALS: Final = 5
# Ending a search for lack of promise asks for more: eight, well ranked, and a gain below what could be noticed.
MIN_TRIALS_TO_JUDGE_GAIN: Final = 8
MIN_RANK_CORRELATION: Final = 0.5
MIN_EXPECTED_IMPROVEMENT: Final = 0.001
MIN_TRIALS_TO_ABORT: Final = 3
ABORT_MARGIN: Final = 1.5


@dataclass(frozen=True, kw_only=True)
class StopReason:
    """Why a search ends; `sentence` is shown to the user."""

    kind: StopKind
    sentence: str


def objective_of(trial: Trial, *, objective: Objective = "tokens_per_second") -> float | None:
    """The measured objective, or None without a usable one: NaN, infinity, zero and less never count as measured."""
    if trial.state != "succeeded" or trial.measurement is None:
        return None
    measured = trial.measurement
    value = measured.tokens_per_second
    if objective == "tokens_per_second_per_device":
        value = measured.tokens_per_second_per_device
    return value if is_positive(value) and is_positive(measured.step_seconds.median) else None


def measured_step_seconds(trial: Trial) -> float | None:
    """The median step of a trial with a usable measurement, else None."""
    if objective_of(trial) is None or trial.measurement is None:
        return None
    return trial.measurement.step_seconds.median


def is_positive(value: float) -> bool:
    """Whether a number can be a time or a rate."""
    return math.isfinite(value) and value > 0


def leaders(trials: Sequence[Trial], *, count: int, objective: Objective = "tokens_per_second") -> list[Trial]:
    """The best `count` measured trials, best first; of equals the earlier one."""
    scored = [(value, trial) for trial in trials if (value := objective_of(trial, objective=objective)) is not None]
    scored.sort(key=lambda item: (-item[0], item[1].number))
    return [trial for _, trial in scored[:count]]


def best_trial(trials: Sequence[Trial], *, objective: Objective = "tokens_per_second") -> Trial | None:
    """The best measured trial, None before there is one."""
    return next(iter(leaders(trials, count=1, objective=objective)), None)


def abort_above_step_seconds(trials: Sequence[Trial], *, margin: float = ABORT_MARGIN) -> float | None:
    """The step time above which a run need not be measured to its end; None until three trials have succeeded."""
    seconds = [value for trial in trials if (value := measured_step_seconds(trial)) is not None]
    return min(seconds) * margin if len(seconds) >= MIN_TRIALS_TO_ABORT else None


def should_stop(
    job: TuningJob,
    trials: Sequence[Trial],
    *,
    candidates_left: int,
    elapsed_seconds: float,
    device_seconds: float,
    expected_improvement: float = math.inf,
) -> StopReason | None:
    """Why the search should end now, or None.

    `expected_improvement` is that of the next proposal in log step time; leave it out where it is not known.
    """
    budget = job.budget
    counted = [trial for trial in trials if trial.state != "cancelled"]
    if len(counted) >= budget.max_trials:
        return StopReason(kind="max_trials", sentence=f"all {budget.max_trials} trials of the budget were used")
    if elapsed_seconds >= budget.max_seconds:
        return StopReason(
            kind="max_seconds",
            sentence=f"the budget of {format_seconds(budget.max_seconds)} was used up after {len(counted)} trials",
        )
    if device_seconds >= budget.max_device_seconds:
        return StopReason(
            kind="max_device_seconds",
            sentence=(
                f"the budget of {budget.max_device_seconds:.0f} device-seconds was used up"
                f" ({device_seconds:.0f} after {len(counted)} trials)"
            ),
        )
    if candidates_left <= 0:
        return StopReason(kind="exhausted", sentence="every feasible layout was tried")
    return _out_of_patience(job, counted) or little_to_gain(trials, expected_improvement=expected_improvement)


def little_to_gain(trials: Sequence[Trial], *, expected_improvement: float) -> StopReason | None:
    """Stops when even the best proposal promises next to nothing.

    Only an estimate that this job's own trials confirm may say so: an uncalibrated one must not end a search.
    """
    if expected_improvement >= MIN_EXPECTED_IMPROVEMENT:
        return None
    estimated, measured = estimated_and_measured_seconds(trials)
    if len(measured) < MIN_TRIALS_TO_JUDGE_GAIN:
        return None
    correlation = spearman(estimated, measured)
    if correlation < MIN_RANK_CORRELATION:
        return None
    return StopReason(
        kind="little_to_gain",
        sentence=(
            f"no other layout promises more than {expected_improvement:.2%} on average (limit"
            f" {MIN_EXPECTED_IMPROVEMENT:.1%}), by estimates that rank {len(measured)} measured trials with a"
            f" correlation of {correlation:.2f}"
        ),
    )


def estimated_and_measured_seconds(trials: Sequence[Trial]) -> tuple[FloatArray, FloatArray]:
    """Step seconds by estimate and by measurement of the trials that have both (shape of each: [trials])."""
    pairs = [
        (trial.estimate.step_seconds, seconds)
        for trial in trials
        if trial.estimate is not None
        and is_positive(trial.estimate.step_seconds)
        and (seconds := measured_step_seconds(trial)) is not None
    ]
    array = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def spearman(first: FloatArray, second: FloatArray) -> float:
    """Rank correlation, ties sharing their mean rank; 0 where one side is constant or has fewer than two values."""
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    return float(np.corrcoef(_mean_ranks(first), _mean_ranks(second))[0, 1])


def _mean_ranks(values: FloatArray) -> FloatArray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2.0)[inverse], dtype=np.float64)


def _out_of_patience(job: TuningJob, trials: Sequence[Trial]) -> StopReason | None:
    """Counts finished trials since the best one; before there is one, all of them."""
    patience = job.budget.patience_trials
    best = best_trial(trials, objective=job.objective)
    since = -1 if best is None else best.number
    waited = sum(1 for t in trials if t.number > since and t.state in ("succeeded", "failed"))
    if waited < patience:
        return None
    if best is None:
        return StopReason(kind="patience", sentence=f"the first {waited} trials gave no measured layout")
    return StopReason(
        kind="patience",
        sentence=f"{waited} trials in a row found nothing better than {best.config.key()} (trial {best.number})",
    )
