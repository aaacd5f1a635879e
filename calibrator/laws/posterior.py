"""Draws from the posterior of one stratum, the three boundaries mixed by their posterior weights.

The functions take `S_eff` (updates), `eta` (learning rate) and `cumulative_lr` (LR x updates) as numbers or
as arrays that broadcast to [K], and return [D] or [K, D]: one value for each draw.
"""
# ruff: noqa: N815 (C, B, S and L are the symbols of the laws)

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from calibrator.laws import boundaries
from calibrator.laws.boundaries import CEILING, CONSTANT, POWER
from calibrator.laws.types import LEVEL, Estimate

__all__ = [
    "CEILING",
    "CONSTANT",
    "POWER",
    "Posterior",
    "collapse_by_schedule",
    "collapse_probability",
    "interval",
    "log_eta_max",
    "prone_probability",
    "quantiles",
    "rounded",
]

Floats = NDArray[np.float64]

DIGITS = 6
"""Significant digits of a reported number: more would only record the machine's rounding."""


@dataclass(frozen=True)
class Posterior:
    """Equally weighted draws; every array has length D. Parameters that a draw's boundary lacks are NaN."""

    boundary: NDArray[np.int64]
    """POWER, CEILING or CONSTANT."""
    log_C: Floats
    alpha: Floats
    log_eta_0: Floats
    sigma_C: Floats
    log_B: Floats
    sigma_B: Floats


def log_eta_max(posterior: Posterior, S_eff: ArrayLike) -> Floats:
    """log of the rate at which half of the runs are prone, each draw by its own boundary [derived]."""
    S = np.asarray(S_eff, dtype=np.float64)[..., None]
    height = np.empty((*S.shape[:-1], posterior.log_B.size))
    for boundary in (POWER, CEILING, CONSTANT):
        of = posterior.boundary == boundary
        height[..., of] = boundaries.log_eta_max(
            boundary,
            S,
            log_C=posterior.log_C[of],
            alpha=posterior.alpha[of],
            log_eta_0=posterior.log_eta_0[of],
        )
    return height


def prone_probability(posterior: Posterior, S_eff: ArrayLike, eta: ArrayLike) -> Floats:
    """P(prone | S, eta) = Phi((log eta - log eta_max) / sigma_C): the chance of a collapse at any horizon."""
    log_eta = np.log(np.asarray(eta, dtype=np.float64))[..., None]
    score = (log_eta - log_eta_max(posterior, S_eff)) / posterior.sigma_C
    return np.asarray(ndtr(score), dtype=np.float64)


def collapse_probability(
    posterior: Posterior, S_eff: ArrayLike, eta: ArrayLike, cumulative_lr: ArrayLike
) -> Floats:
    """P(collapse by L | S, eta) = P(prone) F(L), with F(0) = 0."""
    with np.errstate(divide="ignore"):
        log_L = np.log(np.asarray(cumulative_lr, dtype=np.float64))[..., None]
    fraction = ndtr((log_L - posterior.log_B) / posterior.sigma_B)
    return np.asarray(prone_probability(posterior, S_eff, eta) * fraction, dtype=np.float64)


def collapse_by_schedule(
    posterior: Posterior, S_eff: float, rates: ArrayLike, updates: ArrayLike = 1
) -> Floats:
    """P(collapse by the end of a schedule) [D]: it applies `rates` [K], each for `updates` [K] updates.

    The largest rate decides whether the run is prone, the sum of all applied rates how far it gets. Without `updates`
    there is one rate for each update.
    """
    applied, times = np.broadcast_arrays(np.asarray(rates, dtype=np.float64), np.asarray(updates))
    worked = applied[times > 0]
    if not worked.size:
        return np.zeros(posterior.log_B.size)
    return collapse_probability(posterior, S_eff, float(worked.max()), float(np.sum(applied * times)))


def interval(values: ArrayLike, level: float = LEVEL, weights: Floats | None = None) -> Estimate:
    """Median and equal-tailed credible interval of draws [D]; equally weighted without `weights`."""
    low, middle, high = quantiles(values, [(1 - level) / 2, 0.5, (1 + level) / 2], weights)
    return Estimate(estimate=rounded(middle), low=rounded(low), high=rounded(high), level=level)


def quantiles(values: ArrayLike, q: ArrayLike, weights: Floats | None = None) -> Floats:
    """Weighted quantiles of draws [D], linear between the midpoints of the draws' weights."""
    x = np.asarray(values, dtype=np.float64)
    w = np.full(x.size, 1 / x.size) if weights is None else weights / weights.sum()
    order = np.argsort(x, kind="stable")
    middle = np.cumsum(w[order]) - w[order] / 2
    return np.asarray(np.interp(np.asarray(q), middle, x[order]), dtype=np.float64)


def rounded(value: float) -> float:
    """The value to DIGITS significant digits."""
    return float(f"{value:.{DIGITS}g}")
