"""Correcting estimates by what was measured: one factor for all of them.

A single factor cannot change an order; it makes shown times honest once a few layouts have run.  Fitting the system's
constants to measurements is not done here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

# 1.4826 x the median absolute deviation is the deviation of normal samples.
_MAD_TO_SIGMA = 1.4826


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """measured ~ factor x estimated. `sigma` is the spread of log(measured / estimated), None below 3 pairs."""

    factor: float
    sigma: float | None
    count: int

    def apply(self, estimated_seconds: ArrayLike) -> Floats:
        """Corrected estimates, same shape."""
        corrected: Floats = np.asarray(estimated_seconds, dtype=np.float64) * self.factor
        return corrected


def correction_from(*, estimated_seconds: Sequence[float], measured_seconds: Sequence[float]) -> Correction:
    """The factor exp(median(log(measured / estimated))): one slow run cannot move it. No pairs give the factor 1.

    Raises ValueError for sequences of different lengths or times that are not positive.
    """
    estimated, measured = (
        np.asarray(estimated_seconds, dtype=np.float64),
        np.asarray(measured_seconds, dtype=np.float64),
    )
    if estimated.shape != measured.shape:
        raise ValueError(f"{estimated.size} estimates for {measured.size} measurements; give one for each")
    if not (np.all(estimated > 0) and np.all(measured > 0)):
        raise ValueError("a step takes more than 0 seconds; leave failed runs out")
    if estimated.size == 0:
        return Correction(factor=1.0, sigma=None, count=0)
    logs = np.log(measured / estimated)
    centre = float(np.median(logs))
    spread = _MAD_TO_SIGMA * float(np.median(np.abs(logs - centre))) if logs.size >= 3 else None
    return Correction(factor=float(np.exp(centre)), sigma=spread, count=int(logs.size))
