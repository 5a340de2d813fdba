from __future__ import annotations

import pytest

from autotuner.costmodel.calibration import correction_from


def test_the_factor_is_the_median_ratio_and_one_slow_run_does_not_move_it():
    correction = correction_from(estimated_seconds=[1.0, 2.0, 4.0], measured_seconds=[1.5, 3.0, 400.0])
    assert correction.factor == pytest.approx(1.5)
    assert correction.apply([2.0, 10.0]).tolist() == pytest.approx([3.0, 15.0])


def test_nothing_measured_changes_nothing():
    correction = correction_from(estimated_seconds=[], measured_seconds=[])
    assert (correction.factor, correction.sigma, correction.count) == (1.0, None, 0)


def test_the_spread_is_that_of_the_ratios():
    # log ratios -0.1, 0, 0.1: median absolute deviation 0.1.
    correction = correction_from(estimated_seconds=[1.0] * 3, measured_seconds=[0.904837418, 1.0, 1.105170918])
    assert correction.sigma == pytest.approx(0.14826, abs=1e-6)
    assert correction_from(estimated_seconds=[1.0], measured_seconds=[2.0]).sigma is None


def test_a_missing_partner_and_a_failed_run_are_refused():
    with pytest.raises(ValueError, match="1 estimates for 2 measurements"):
        correction_from(estimated_seconds=[1.0], measured_seconds=[1.0, 2.0])
    with pytest.raises(ValueError, match="leave failed runs out"):
        correction_from(estimated_seconds=[1.0], measured_seconds=[0.0])
