"""When a search ends, who leads, and which numbers never count."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.domain.parallel import ParallelConfig
from autotuner.domain.trial import Trial
from autotuner.search.stopping import StopReason, abort_above_step_seconds, best_trial, leaders, should_stop, spearman
from tests.support.search import make_estimate, make_job, make_trial

CONFIGS = [ParallelConfig(dp=8, micro_batch_size=m) for m in range(1, 40)]


def succeeded(*seconds: float) -> list[Trial]:
    return [make_trial(n, CONFIGS[n], step_seconds=s) for n, s in enumerate(seconds)]


def stop(trials: list[Trial], *, budget: dict[str, Any] | None = None, **state: Any) -> StopReason | None:
    given_state: dict[str, Any] = {"candidates_left": 9, "elapsed_seconds": 1.0, "device_seconds": 1.0}
    return should_stop(make_job(budget=budget), trials, **(given_state | state))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 0.0, -1.0])
def test_an_unusable_measurement_never_leads(bad: float) -> None:
    trials = [*succeeded(2.0), make_trial(1, CONFIGS[1], step_seconds=bad)]
    best = best_trial(trials)
    assert best is not None
    assert best.number == 0
    assert leaders(trials, count=5) == trials[:1]
    assert best_trial(trials[1:]) is None


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=20))
def test_the_best_is_the_fastest_usable_one(seconds: list[float]) -> None:
    usable = [s for s in seconds if math.isfinite(s) and s > 0 and math.isfinite(1000.0 / s) and 1000.0 / s / 8 > 0]
    best = best_trial(succeeded(*seconds))
    if not usable:
        assert best is None
    else:
        assert best is not None
        assert best.measurement is not None
        assert 1000.0 / best.measurement.step_seconds.median == 1000.0 / min(usable)


def test_leaders_are_in_order_and_the_earlier_of_equals_comes_first() -> None:
    assert [t.number for t in leaders(succeeded(2.0, 1.0, 3.0, 1.0), count=3)] == [1, 3, 0]


def test_a_failed_trial_does_not_lead_even_with_a_measurement() -> None:
    assert best_trial([make_trial(0, CONFIGS[0], step_seconds=1.0, failure="mismatch")]) is None


def test_a_run_may_end_early_once_three_trials_have_succeeded() -> None:
    assert abort_above_step_seconds(succeeded(2.0, 4.0)) is None
    assert abort_above_step_seconds(succeeded(2.0, 4.0, math.nan)) is None
    assert abort_above_step_seconds(succeeded(2.0, 4.0, 3.0), margin=1.5) == 3.0


def test_every_budget_stops_with_its_number() -> None:
    trials = succeeded(2.0, 1.0)
    assert stop(trials) is None
    for budget, state, kind, words in [
        ({"max_trials": 2}, {}, "max_trials", "all 2 trials"),
        ({"max_seconds": 60.0}, {"elapsed_seconds": 60.0}, "max_seconds", "60.00 s"),
        ({"max_device_seconds": 500.0}, {"device_seconds": 500.0}, "max_device_seconds", "500 device-seconds"),
        ({}, {"candidates_left": 0}, "exhausted", "every feasible layout"),
    ]:
        reason = stop(trials, budget=budget, **state)
        assert reason is not None
        assert reason.kind == kind
        assert words in reason.sentence


def test_a_cancelled_trial_uses_no_budget() -> None:
    assert stop([make_trial(0, CONFIGS[0], state="cancelled")], budget={"max_trials": 1}) is None


def test_patience_counts_ended_trials_since_the_best() -> None:
    budget = {"patience_trials": 3}
    trials = [*succeeded(2.0, 1.0, 1.5), make_trial(3, CONFIGS[3], failure="crash")]
    assert stop(trials, budget=budget) is None
    assert stop([*trials, make_trial(4, CONFIGS[4], state="running")], budget=budget) is None
    reason = stop([*trials, make_trial(4, CONFIGS[4], step_seconds=1.2)], budget=budget)
    assert reason is not None
    assert reason.sentence == "3 trials in a row found nothing better than tp1-pp1-dp8-mb2 (trial 1)"
    # A new best starts the count anew.
    assert stop([*trials, make_trial(4, CONFIGS[4], step_seconds=0.9)], budget=budget) is None


def test_patience_ends_a_search_in_which_nothing_runs() -> None:
    trials = [make_trial(n, CONFIGS[n], failure="launch_error") for n in range(3)]
    reason = stop(trials, budget={"patience_trials": 3})
    assert reason is not None
    assert reason.sentence == "the first 3 trials gave no measured layout"


def estimated(pairs: list[tuple[float, float]]) -> list[Trial]:
    return [
        make_trial(n, CONFIGS[n], step_seconds=measured, estimate=make_estimate(CONFIGS[n], step_seconds=guess))
        for n, (guess, measured) in enumerate(pairs)
    ]


def test_little_to_gain_needs_estimates_that_this_job_confirmed() -> None:
    good = [(1.0 + n, 2.0 + n) for n in range(8)]
    assert stop(estimated(good), expected_improvement=0.0005) is not None
    # Too few trials, estimates in the wrong order, a gain worth having, or none known: the search goes on.
    assert stop(estimated(good[:7]), expected_improvement=0.0) is None
    wrong = [(1.0 + n, 20.0 - n) for n in range(8)]
    assert stop(estimated(wrong), expected_improvement=0.0) is None
    assert stop(estimated(good), expected_improvement=0.01) is None
    assert stop(estimated(good)) is None
    assert stop(succeeded(*range(1, 12)), expected_improvement=0.0) is None


def test_rank_correlation_by_hand() -> None:
    # Ranks 1 2 3 4 against 1 2 4 3: 1 - 6 x (1 + 1) / (4 x 15) = 0.8.
    assert spearman(np.array([1.0, 2.0, 3.0, 4.0]), np.array([10.0, 20.0, 40.0, 30.0])) == pytest.approx(0.8)
    # Ties share a rank: 1.5 1.5 3 against 1 2 3 has covariance 1.5, variances 1.5 and 2: 1.5 / sqrt(3).
    assert spearman(np.array([5.0, 5.0, 9.0]), np.array([1.0, 2.0, 3.0])) == pytest.approx(1.5 / 3**0.5)
    assert spearman(np.array([1.0, 1.0]), np.array([1.0, 2.0])) == 0.0
