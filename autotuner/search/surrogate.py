"""Which candidate is worth measuring next, learned from the trials so far.

A Gaussian process over the candidate list regresses log(measured / estimated) step time, so that what the cost model
knows need not be learned again; a second one regresses the same of peak memory.  The score of a candidate is its
expected improvement in log step time (Jones, Schonlau and Welch 1998, equation 15) times its squared probability of
fitting: once because only a layout that fits improves anything, once because one that does not costs a trial which
teaches nothing about time.
Where the estimates do not rank this job's measurements, the first process regresses log(measured) instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from autotuner.costmodel.normal import normal_cdf
from autotuner.domain.trial import Trial
from autotuner.search import gaussian_process as gp
from autotuner.search.columns import FloatArray, IntArray
from autotuner.search.features import Features
from autotuner.search.memory_model import probability_of_fitting
from autotuner.search.observations import Observations, observe
from autotuner.search.ranking import CandidateSet, ranked
from autotuner.search.stopping import MIN_CALIBRATION_TRIALS, spearman

# Estimates closer than this factor to each other carry no order that a measurement could contradict.
_MIN_ESTIMATE_RANGE: Final = 1.25
_MIN_RANK_CORRELATION: Final = 0.3
_RESIDUAL_MEAN_SPREAD: Final = 1.0
_PLAIN_MEAN_SPREAD: Final = 5.0
_PLAIN_SIGNAL: Final = 0.4
_NOISE: Final = 0.02


@dataclass(frozen=True, kw_only=True)
class Scores:
    """What the model thinks of every candidate (shape of each array: [candidates]).

    `log_seconds` and `deviation` predict the step; `score` is the expected improvement times `probability_fits`².
    `uses_estimates` is False after the fall-back to plain measurements. `best_log_seconds` is what must be beaten.
    """

    log_seconds: FloatArray
    deviation: FloatArray
    probability_fits: FloatArray
    score: FloatArray
    best_log_seconds: float
    points: int
    uses_estimates: bool


def score_candidates(
    candidates: CandidateSet, trials: Sequence[Trial], *, use_estimates: bool, seed: int
) -> Scores | None:
    """Score every candidate. None before there is a measurement to improve on."""
    observed = observe(candidates, trials)
    if len(observed.seconds) == 0:
        return None
    residual = use_estimates and estimates_rank_well(observed)
    features = Features.build(candidates.columns, others=[trial.config for trial in trials])
    x = features.of(observed.configs)
    known = np.log(observed.estimated_seconds) if residual else np.zeros(len(x))
    fitted = _fit(x, np.log(observed.seconds) - known, candidates=candidates, residual=residual, seed=seed)
    # The model's values at the measured points: one lucky run must not set the bar (Picheny et al. 2013, section 3).
    best = float(np.min(fitted.predict(x)[0] + known))
    mean, deviation = _believing(fitted, features.of(observed.pending)).predict(features.candidates)
    log_seconds = mean + np.log(candidates.step_seconds) if residual else mean
    fits = probability_of_fitting(candidates, observed, features=features)
    return Scores(
        log_seconds=log_seconds,
        deviation=deviation,
        probability_fits=fits,
        score=expected_improvement(log_seconds, deviation, best=best) * fits**2,
        best_log_seconds=best,
        points=len(observed.seconds),
        uses_estimates=residual,
    )


def learned_ranking(candidates: CandidateSet, trials: Sequence[Trial]) -> IntArray:
    """Indices in order of the estimate, weighted by what the trials so far say about memory (shape: [candidates])."""
    observed = observe(candidates, trials)
    features = Features.build(candidates.columns, others=[trial.config for trial in trials])
    fits = probability_of_fitting(candidates, observed, features=features)
    return ranked(candidates.step_seconds, probability_fits=fits)


def estimates_rank_well(observed: Observations) -> bool:
    """Whether the estimates may guide the search: yes, until five measurements contradict their order."""
    if len(observed.seconds) < MIN_CALIBRATION_TRIALS:
        return True
    estimated = observed.estimated_seconds
    if float(estimated.max() / estimated.min()) < _MIN_ESTIMATE_RANGE:
        return True
    return spearman(estimated, observed.seconds) >= _MIN_RANK_CORRELATION


def expected_improvement(mean: FloatArray, deviation: FloatArray, *, best: float) -> FloatArray:
    """E[max(0, best - f)] for f normal, for minimisation (Jones et al. 1998, equation 15)."""
    gain = best - mean
    z = gain / deviation
    return np.asarray(np.maximum(gain * normal_cdf(z) + deviation * gp.normal_pdf(z), 0.0), dtype=np.float64)


def _fit(x: FloatArray, y: FloatArray, *, candidates: CandidateSet, residual: bool, seed: int) -> gp.Fitted:
    if residual:
        prior = gp.Prior(signal=candidates.job.cluster.constants.time_sigma, noise=_NOISE)
        return gp.fit(x, y, prior=prior, mean=0.0, mean_spread=_RESIDUAL_MEAN_SPREAD, seed=seed)
    prior = gp.Prior(signal=_PLAIN_SIGNAL, noise=_NOISE)
    return gp.fit(x, y, prior=prior, mean=float(np.mean(y)), mean_spread=_PLAIN_MEAN_SPREAD, seed=seed)


def _believing(fitted: gp.Fitted, pending: FloatArray) -> gp.Fitted:
    """The process as if each pending layout had come out as predicted, so that its neighbours look less uncertain.

    "Kriging believer" (Ginsbourger, Le Riche and Carraro 2010, section 4.2).
    """
    if len(pending) == 0:
        return fitted
    return fitted.with_points(pending, fitted.predict(pending)[0])
