"""The Gaussian process against formulas solved by hand, and what each kind of trial teaches."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autotuner.domain.trial import Trial
from autotuner.search import gaussian_process as gp
from autotuner.search.observations import MAX_POINTS, observe
from autotuner.search.ranking import CandidateSet
from autotuner.search.surrogate import Scores, expected_improvement, learned_ranking, score_candidates
from tests.support.search import GIB, make_candidates, make_cluster, make_job, make_trial


@pytest.fixture(scope="module")
def candidates() -> CandidateSet:
    return make_candidates(make_job(cluster=make_cluster(nodes=2, memory_bytes=40 * GIB)))


def measured(candidates: CandidateSet, indices: list[int], *, factor: float = 1.0, peak: float = 1.0) -> list[Trial]:
    return [
        make_trial(
            n,
            candidates.configs[i],
            step_seconds=float(candidates.step_seconds[i]) * factor,
            peak_memory_bytes=int(candidates.memory_bytes[i] * peak),
        )
        for n, i in enumerate(indices)
    ]


def scored(candidates: CandidateSet, trials: list[Trial], *, use_estimates: bool = True) -> Scores:
    scores = score_candidates(candidates, trials, use_estimates=use_estimates, seed=0)
    assert scores is not None
    return scores


def test_one_point_is_predicted_as_by_hand() -> None:
    # Signal 1, noise 0.5, a mean fixed at 0: the mean at the point is 1 / (1 + 0.25) of y, the variance 1 - 1 / 1.25.
    fitted = gp.condition(
        np.zeros((1, 1)),
        np.array([2.0]),
        hyper=gp.Hyper(signal=1.0, noise=0.5, length=np.array([1.0])),
        mean=0.0,
        mean_spread=1e-6,
    )
    mean, deviation = fitted.predict(np.array([[0.0], [1e3]]))
    assert mean == pytest.approx([1.6, 0.0], abs=1e-6)
    assert deviation == pytest.approx([math.sqrt(0.2), 1.0], abs=1e-6)


def test_a_free_mean_is_shared_by_points_far_apart() -> None:
    # Two independent points with deviation sqrt(1.25) and an almost free mean: the mean is their average.
    fitted = gp.condition(
        np.array([[0.0], [1e3]]),
        np.array([1.0, 3.0]),
        hyper=gp.Hyper(signal=1.0, noise=0.5, length=np.array([1.0])),
        mean=0.0,
        mean_spread=1e3,
    )
    assert fitted.mean == pytest.approx(2.0, abs=1e-5)
    assert fitted.mean_spread == pytest.approx(math.sqrt(1.25 / 2), rel=1e-5)


def test_the_gradient_is_the_slope_of_the_likelihood() -> None:
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(7, 3)), generator.normal(size=7)
    squares, theta = gp._squares(x), np.array([0.1, -1.0, 0.3, -0.2, 0.5])
    _, gradient = gp._log_likelihood(theta, squares, y)
    for axis, step in enumerate(np.eye(5) * 1e-6):
        slope = gp._log_likelihood(theta + step, squares, y)[0] - gp._log_likelihood(theta - step, squares, y)[0]
        assert gradient[axis] == pytest.approx(slope / 2e-6, rel=1e-4, abs=1e-6)


def test_a_fit_finds_the_axis_that_matters() -> None:
    generator = np.random.default_rng(1)
    x = generator.uniform(-3, 3, size=(40, 2))
    prior = gp.Prior(signal=1.0, noise=0.05, signal_spread=1.0, length_spread=1.0)
    fitted = gp.fit(x, np.sin(x[:, 0]), prior=prior, mean=0.0, mean_spread=1.0, seed=0)
    assert fitted.hyper.length[1] > 2 * fitted.hyper.length[0]
    mean, _ = fitted.predict(np.array([[0.5, 2.0], [0.5, -2.0]]))
    assert mean == pytest.approx([math.sin(0.5)] * 2, abs=0.1)


def test_expected_improvement_by_hand() -> None:
    # At the best itself with deviation 1 it is the density at 0, 0.3989; far below the best it is the gain.
    gains = expected_improvement(np.array([0.0, -9.0, 9.0]), np.ones(3), best=0.0)
    assert gains == pytest.approx([0.398942, 9.0, 0.0], abs=1e-5)


def test_an_estimate_off_by_a_factor_keeps_its_order(candidates: CandidateSet) -> None:
    scores = scored(candidates, measured(candidates, list(range(0, 300, 30)), factor=3.0))
    assert scores.uses_estimates
    # log(measured) = log(estimated) + log 3 everywhere.
    assert scores.log_seconds == pytest.approx(np.log(candidates.step_seconds * 3.0), abs=0.02)


def test_estimates_in_the_wrong_order_are_dropped(candidates: CandidateSet) -> None:
    indices = list(range(0, 300, 30))
    trials = [
        make_trial(n, candidates.configs[i], step_seconds=1.0 / float(candidates.step_seconds[i]))
        for n, i in enumerate(indices)
    ]
    assert scored(candidates, trials[:4]).uses_estimates
    assert not scored(candidates, trials).uses_estimates


def test_running_out_of_memory_teaches_memory_and_not_time(candidates: CandidateSet) -> None:
    trials = measured(candidates, [0, 50, 100])
    tight = int(np.argmin(np.abs(candidates.memory_bytes - 38 * GIB)))
    failed = make_trial(9, candidates.configs[tight], failure="out_of_memory")
    before, after = scored(candidates, trials), scored(candidates, [*trials, failed])
    assert np.array_equal(before.log_seconds, after.log_seconds)
    assert after.probability_fits[tight] < before.probability_fits[tight]


def test_a_memory_bias_is_learned_for_the_whole_list(candidates: CandidateSet) -> None:
    # Peaks 30 % above the estimate: what is estimated at 34 GiB needs 44 of 40 GiB.
    tight = int(np.argmin(np.abs(candidates.memory_bytes - 34 * GIB)))
    trials = measured(candidates, [0, 40, 80, 120, 160, 200], peak=1.3)
    scores = scored(candidates, trials)
    assert candidates.probability_fits[tight] > 0.9
    assert scores.probability_fits[tight] < 0.1
    assert learned_ranking(candidates, trials)[0] != tight


def test_a_timeout_says_slow_and_a_crash_says_nothing(candidates: CandidateSet) -> None:
    trials = measured(candidates, [0, 50])
    config = candidates.configs[100]
    crashed = observe(candidates, [*trials, make_trial(9, config, failure="crash")])
    assert len(crashed.seconds) == 2
    slow = observe(candidates, [*trials, make_trial(9, config, failure="timeout")])
    assert slow.seconds[2] >= max(slow.seconds[:2])


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0])
def test_unusable_measurements_are_not_learned_from(candidates: CandidateSet, bad: float) -> None:
    good = measured(candidates, [0, 50])
    with_bad = [*good, make_trial(9, candidates.configs[100], step_seconds=bad)]
    assert np.array_equal(scored(candidates, good).score, scored(candidates, with_bad).score)


def test_nothing_measured_gives_no_score(candidates: CandidateSet) -> None:
    assert score_candidates(candidates, [], use_estimates=True, seed=0) is None


def test_a_pending_layout_makes_its_neighbours_less_interesting(candidates: CandidateSet) -> None:
    trials = measured(candidates, [0, 50])
    pending = make_trial(9, candidates.configs[100], state="running")
    before, after = scored(candidates, trials), scored(candidates, [*trials, pending])
    assert after.deviation[101] < before.deviation[101]
    assert after.points == 2


def test_a_long_history_is_cut_to_its_fastest_and_latest(candidates: CandidateSet) -> None:
    trials = measured(candidates, list(range(200)))
    observed = observe(candidates, trials)
    assert len(observed.seconds) == MAX_POINTS
    assert observed.seconds.min() == candidates.step_seconds[:200].min()
    assert observed.configs[-1] == candidates.configs[199]
