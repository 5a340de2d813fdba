"""Gaussian process regression for a few hundred points, numpy only: fit, predict, and the hyper-parameters.

Rasmussen and Williams 2006: prediction by Algorithm 2.1 with a mean estimated by generalised least squares
(section 2.7), Matern-5/2 kernel (equation 4.17) with one length scale per feature, marginal likelihood and its gradient
(equations 5.8 and 5.9).  Weak log-normal priors keep five points from being over-fitted.  What is regressed on what is
decided in `surrogate.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from autotuner.search.columns import FloatArray

_SQRT5: Final = 5.0**0.5
_MIN_POINTS_TO_FIT: Final = 4
# Scales are learned from so many points at most. Matrices of this size are also too small for the linear algebra
# library to split over threads, which on a machine busy with training ranks makes each product wait for its turn.
_MAX_POINTS_TO_FIT: Final = 60
_STEPS: Final = 40
_RESTARTS: Final = 2
_JITTER: Final = 1e-10
# Candidates scored at once: bounds memory at (points x rows) doubles, not their time.
_CHUNK_ROWS: Final = 16_384


@dataclass(frozen=True, kw_only=True)
class Prior:
    """Where the hyper-parameters are expected: the deviations in units of the target, length scales in features'.

    `*_spread` are standard deviations of the logarithm; 0.0 fixes a parameter.  They are narrow on purpose: a few
    near neighbours otherwise make the process sure of layouts that are nothing like them.
    """

    signal: float
    noise: float
    length: float = 1.5
    signal_spread: float = 0.3
    noise_spread: float = 0.6
    length_spread: float = 0.5


@dataclass(frozen=True, kw_only=True)
class Hyper:
    """`length` has one entry for each feature (shape: [features])."""

    signal: float
    noise: float
    length: FloatArray


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A process conditioned on its points; `mean` is what the points made of `prior_mean`.

    Shapes: `x` [points, features], `y` and `weights` [points], `inverse_root` [points, points].
    """

    x: FloatArray
    y: FloatArray
    hyper: Hyper
    mean: float
    mean_spread: float
    prior_mean: float
    prior_mean_spread: float
    inverse_root: FloatArray
    weights: FloatArray

    def with_points(self, x: FloatArray, y: FloatArray) -> Fitted:
        """The process conditioned on more points, hyper-parameters unchanged."""
        return condition(
            np.vstack([self.x, x]),
            np.append(self.y, y),
            hyper=self.hyper,
            mean=self.prior_mean,
            mean_spread=self.prior_mean_spread,
        )

    def predict(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation without noise at each row of `x` (shape: [rows, features])."""
        means, deviations = [], []
        for start in range(0, len(x), _CHUNK_ROWS):
            mean, deviation = self._predict_chunk(x[start : start + _CHUNK_ROWS])
            means.append(mean)
            deviations.append(deviation)
        if not means:
            return np.zeros(0), np.zeros(0)
        return np.concatenate(means), np.concatenate(deviations)

    def _predict_chunk(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        signal = self.hyper.signal**2
        if len(self.x) == 0:
            deviation = np.full(len(x), (signal + self.mean_spread**2) ** 0.5)
            return np.full(len(x), self.mean), deviation
        cross = signal * _matern(_scaled_squares(x, self.x, self.hyper.length))
        explained = self.inverse_root @ cross.T
        unexplained = signal - np.einsum("ij,ij->j", explained, explained)
        # The share of the mean that the points do not determine (Rasmussen and Williams, equation 2.42).
        rooted_ones = self.inverse_root.sum(axis=1)
        open_mean = (1.0 - rooted_ones @ explained) * self.mean_spread
        variance = np.maximum(unexplained, 0.0) + open_mean**2
        return self.mean + cross @ self.weights, np.sqrt(variance + _JITTER)


def normal_pdf(z: FloatArray) -> FloatArray:
    """Density of the standard normal distribution, element by element."""
    return np.asarray(np.exp(-0.5 * z**2) / (2.0 * np.pi) ** 0.5, dtype=np.float64)


def fit(x: FloatArray, y: FloatArray, *, prior: Prior, mean: float, mean_spread: float, seed: int) -> Fitted:
    """Condition on points; the mean has a normal prior around `mean`. Below four points the prior's scales stay."""
    hyper = Hyper(signal=prior.signal, noise=prior.noise, length=np.full(x.shape[1], prior.length))
    if len(y) >= _MIN_POINTS_TO_FIT:
        some = np.unique(np.linspace(0, len(y) - 1, min(len(y), _MAX_POINTS_TO_FIT)).astype(np.int64))
        hyper = _best_hyper(x[some], y[some], prior=prior, seed=seed)
    return condition(x, y, hyper=hyper, mean=mean, mean_spread=mean_spread)


def condition(x: FloatArray, y: FloatArray, *, hyper: Hyper, mean: float, mean_spread: float) -> Fitted:
    """The process with given hyper-parameters."""
    inverse_root = _inverse_root(_covariance(_squares(x), hyper))
    rooted_ones, rooted_y = inverse_root.sum(axis=1), inverse_root @ y
    # Bayesian linear regression on the constant function.
    precision = rooted_ones @ rooted_ones + mean_spread**-2
    mean_now = float((rooted_ones @ rooted_y + mean / mean_spread**2) / precision)
    return Fitted(
        x=x,
        y=y,
        hyper=hyper,
        mean=mean_now,
        mean_spread=float(precision**-0.5),
        prior_mean=mean,
        prior_mean_spread=mean_spread,
        inverse_root=inverse_root,
        weights=inverse_root.T @ (rooted_y - mean_now * rooted_ones),
    )


def _best_hyper(x: FloatArray, y: FloatArray, *, prior: Prior, seed: int) -> Hyper:
    """The best of a few ascents: one from the prior's centre, the others from seeded draws of the prior."""
    center = np.log(np.array([prior.signal, prior.noise, *([prior.length] * x.shape[1])]))
    spread = np.array([prior.signal_spread, prior.noise_spread, *([prior.length_spread] * x.shape[1])])
    generator, squares = np.random.default_rng(seed), _squares(x)
    # Without free length scales there is a single optimum.
    restarts = _RESTARTS if prior.length_spread > 0 else 0
    starts = [center, *(center + spread * generator.standard_normal(len(center)) for _ in range(restarts))]
    ascents = [_ascend(start, squares, y, center=center, spread=spread) for start in starts]
    _, best = max(ascents, key=lambda ascent: ascent[0])
    return _hyper(best)


def _hyper(theta: FloatArray) -> Hyper:
    signal, noise, *length = np.exp(theta).tolist()
    return Hyper(signal=signal, noise=noise, length=np.array(length, dtype=np.float64))


def _ascend(
    start: FloatArray, squares: FloatArray, y: FloatArray, *, center: FloatArray, spread: FloatArray
) -> tuple[float, FloatArray]:
    """Resilient ascent (Riedmiller and Braun 1993, without backtracking): only signs of the gradient are used."""
    free = spread > 0
    safe = np.where(free, spread, 1.0)
    theta, step = start.copy(), np.full(len(start), 0.2)
    last = np.zeros(len(start))
    best_value, best_theta = -np.inf, start
    for _ in range(_STEPS):
        value, gradient = _log_likelihood(theta, squares, y)
        offset = (theta - center) / safe
        value -= 0.5 * float(np.sum(offset[free] ** 2))
        gradient = np.where(free, gradient - offset / safe, 0.0)
        if value > best_value:
            best_value, best_theta = value, theta.copy()
        same = np.sign(gradient) * np.sign(last)
        step = np.clip(np.where(same > 0, step * 1.3, np.where(same < 0, step * 0.5, step)), 1e-3, 0.6)
        # Three deviations of the prior are as far as a parameter may go.
        theta = np.clip(theta + np.sign(gradient) * step, center - 3 * spread, center + 3 * spread)
        last = gradient
    return best_value, best_theta


def _log_likelihood(theta: FloatArray, squares: FloatArray, y: FloatArray) -> tuple[float, FloatArray]:
    """Log marginal likelihood with the mean at its optimum, and its gradient by `theta` (both shapes as `theta`)."""
    hyper = _hyper(theta)
    flat = squares.reshape(len(squares), -1)
    distance = _SQRT5 * np.sqrt(np.einsum("f,fk->k", hyper.length**-2.0, flat).reshape(len(y), len(y)))
    decay = hyper.signal**2 * np.exp(-distance)
    kernel = decay * (1 + distance + distance**2 / 3)
    root = _inverse_root(kernel + (hyper.noise**2 + _JITTER) * np.eye(len(y)))
    inverse = root.T @ root
    ones_weight = inverse.sum(axis=1)
    residual = y - float(ones_weight @ y / ones_weight.sum())
    weights = inverse @ residual
    value = -0.5 * float(residual @ weights) + float(np.log(np.diag(root)).sum())
    # d value / d K, so that each entry of the gradient is a sum over K's own derivative (equation 5.9).
    by_kernel = 0.5 * (np.outer(weights, weights) - inverse)
    by_length = (5.0 / 3.0) * decay * (1 + distance) * by_kernel
    gradient = np.concatenate(
        [
            [2 * float(np.sum(by_kernel * kernel)), 2 * hyper.noise**2 * float(np.trace(by_kernel))],
            hyper.length**-2.0 * np.einsum("fk,k->f", flat, by_length.ravel()),
        ]
    )
    return value, gradient


def _squares(x: FloatArray) -> FloatArray:
    """Squared differences (shape: [features, points, points])."""
    return np.asarray((x.T[:, :, None] - x.T[:, None, :]) ** 2, dtype=np.float64)


def _scaled_squares(x: FloatArray, other: FloatArray, length: FloatArray) -> FloatArray:
    """Squared scaled distances (shape: [rows of x, rows of other])."""
    a, b = x / length, other / length
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None, :] - 2 * a @ b.T
    return np.asarray(np.maximum(squares, 0.0), dtype=np.float64)


def _matern(scaled_squares: FloatArray) -> FloatArray:
    distance = _SQRT5 * np.sqrt(scaled_squares)
    return np.asarray((1 + distance + distance**2 / 3) * np.exp(-distance), dtype=np.float64)


def _covariance(squares: FloatArray, hyper: Hyper) -> FloatArray:
    scaled = np.einsum("fij,f->ij", squares, hyper.length**-2.0)
    kernel = hyper.signal**2 * _matern(scaled)
    return np.asarray(kernel + (hyper.noise**2 + _JITTER) * np.eye(len(kernel)), dtype=np.float64)


def _inverse_root(covariance: FloatArray) -> FloatArray:
    """R with R.T @ R = covariance^-1, the inverse of the Cholesky factor (shape: [points, points])."""
    return np.asarray(np.linalg.inv(np.linalg.cholesky(covariance)), dtype=np.float64)
