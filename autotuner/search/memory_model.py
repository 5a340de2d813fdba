"""How likely each candidate fits, corrected by the peaks and the out-of-memory failures seen so far.

A Gaussian process on log(measured peak / estimated peak) with a fixed length scale.  A failure gives a lower bound
only; it enters as the mean of the predicted distribution above that bound, in the order of the trials.  Before anything
was seen, the estimate's own probability stands.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from autotuner.costmodel.normal import normal_cdf
from autotuner.search import gaussian_process as gp
from autotuner.search.columns import FloatArray
from autotuner.search.features import Features
from autotuner.search.observations import Observations
from autotuner.search.ranking import CandidateSet

_NOISE: Final = 0.02
_LENGTH: Final = 3.0
_MIN_MEAN_SPREAD: Final = 0.15


def probability_of_fitting(candidates: CandidateSet, observed: Observations, *, features: Features) -> FloatArray:
    """Probability that the peak stays within a device's memory less the headroom (shape: [candidates])."""
    if not observed.peak_configs and not observed.full_configs:
        return candidates.probability_fits
    fitted = _fit(candidates, observed, features=features)
    mean, deviation = fitted.predict(features.candidates)
    deviation = np.sqrt(deviation**2 + fitted.hyper.noise**2)
    job = candidates.job
    usable = job.cluster.device.memory_bytes * (1.0 - job.space.memory_headroom)
    room = math.log(usable) - np.log(np.maximum(candidates.memory_bytes, 1.0))
    return normal_cdf((room - mean) / deviation)


def _fit(candidates: CandidateSet, observed: Observations, *, features: Features) -> gp.Fitted:
    sigma = candidates.job.cluster.constants.memory_sigma
    x = features.of(observed.peak_configs)
    y = np.log(observed.peak_bytes) - np.log(np.maximum(observed.estimated_peak_bytes, 1.0))
    fitted = gp.fit(x, y, prior=_prior(sigma), mean=0.0, mean_spread=max(_MIN_MEAN_SPREAD, 2 * sigma), seed=0)
    capacity = math.log(candidates.job.cluster.device.memory_bytes)
    bounds = capacity - np.log(np.maximum(observed.estimated_full_bytes, 1.0))
    for row, bound in zip(features.of(observed.full_configs), bounds, strict=True):
        mean, deviation = fitted.predict(row[None, :])
        above = _mean_above(float(bound), mean=float(mean[0]), deviation=math.hypot(float(deviation[0]), _NOISE))
        fitted = fitted.with_points(row[None, :], np.array([above]))
    return fitted


def _prior(sigma: float) -> gp.Prior:
    """Only how much layouts differ is learned: peaks that are all off by the same factor make the rest trustworthy."""
    return gp.Prior(signal=sigma, noise=_NOISE, length=_LENGTH, signal_spread=0.7, noise_spread=0.0, length_spread=0.0)


def _mean_above(bound: float, *, mean: float, deviation: float) -> float:
    """The mean of a normal variable given that it exceeds `bound`."""
    z = (bound - mean) / deviation
    # From four deviations on, the tail is too small to divide by, and z + 1/z is within 2 % of the ratio.
    far = z + 1 / z if z >= 4 else float(gp.normal_pdf(np.array([z]))[0] / normal_cdf(np.array([-z]))[0])
    return mean + deviation * far
