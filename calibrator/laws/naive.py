"""The naive answer: penalised logistic regression of "collapsed" on log eta and log S.

It takes a run that stopped early for a run that is stable, which is why it stands beside the censored fit
and only gives that fit its starting values.
"""
# ruff: noqa: N815 (C, B, S and L are the symbols of the laws)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from calibrator.laws.observations import is_event, is_used
from calibrator.laws.posterior import rounded
from calibrator.laws.types import LEVEL, BoundaryModel, Estimate, Run

Floats = NDArray[np.float64]

PENALTY = 1.0
"""Ridge on the two slopes (the intercept is free)."""
LOGIT_TO_PROBIT = 1.702
"""Logistic(1.702 x) is within 0.01 of Phi(x) everywhere."""
WIDEST = 20.0
"""Half-width of an interval, in logs, from which the naive answer is not worth showing."""
Z = 1.6448536269514722
"""Half-width of a 90 % normal interval."""


@dataclass(frozen=True)
class Naive:
    """Power boundary log eta_max = log C - alpha log S with its spread, and the covariance of
    (log C, alpha, log sigma) by the delta method."""

    log_C: float
    alpha: float
    log_sigma: float
    covariance: Floats
    log_likelihood: float


def logistic_boundary(runs: Sequence[Run]) -> Naive | None:
    """Logistic fit of the used runs; None when all have one outcome or more rate means fewer collapses."""
    used = [run for run in runs if is_used(run)]
    died = np.array([is_event(run) for run in used])
    if died.all() or not died.any():
        return None
    from sklearn.linear_model import LogisticRegression  # slow to import, and only fits need it

    x = np.log([[run.learning_rate, run.effective_interval] for run in used])
    centre = x.mean(axis=0)  # makes the ridge indifferent to the unit of eta
    fit = LogisticRegression(C=1 / PENALTY, tol=1e-8, max_iter=1000).fit(x - centre, died)
    slope_eta, slope_S = (float(b) for b in fit.coef_[0])
    if slope_eta <= 0:
        return None
    intercept = float(fit.intercept_[0]) - float(fit.coef_[0] @ centre)
    covariance = _covariance(x, centre, np.array([intercept, slope_eta, slope_S]))
    log_p = fit.predict_log_proba(x - centre)
    return Naive(
        log_C=-intercept / slope_eta,
        alpha=slope_S / slope_eta,
        log_sigma=float(np.log(LOGIT_TO_PROBIT / slope_eta)),
        covariance=covariance,
        log_likelihood=float(np.sum(np.where(died, log_p[:, 1], log_p[:, 0]))),
    )


def naive_model(naive: Naive | None) -> BoundaryModel | None:
    """The logistic fit in the form of the report: weight 0, since it takes no part in the mixture.

    None also when its intervals span many powers of ten: then the rate hardly matters to it, and dividing by
    its slope says nothing.
    """
    if naive is None:
        return None
    half = Z * np.sqrt(np.diag(naive.covariance))
    if not max(half) < WIDEST:
        return None
    log_C, alpha, log_sigma = zip((naive.log_C, naive.alpha, naive.log_sigma), half, strict=True)
    return BoundaryModel(
        weight=0.0,
        log_evidence=rounded(naive.log_likelihood),
        sigma=_exponential(*log_sigma),
        C=_exponential(*log_C),
        alpha=Estimate(
            estimate=rounded(alpha[0]), low=rounded(alpha[0] - alpha[1]), high=rounded(alpha[0] + alpha[1])
        ),
    )


def _exponential(centre: float, half: float) -> Estimate:
    low, middle, high = (rounded(float(np.exp(centre + k * half))) for k in (-1, 0, 1))
    return Estimate(estimate=middle, low=low, high=high, level=LEVEL)


def _covariance(x: Floats, centre: Floats, coefficients: Floats) -> Floats:
    """Delta method on (log C, alpha, log sigma) = (-b0/b1, b2/b1, -log b1 + const)."""
    b0, b1, b2 = coefficients
    design = np.column_stack([np.ones(len(x)), x - centre])
    p = expit(b0 + x @ coefficients[1:])
    information = (design * (p * (1 - p))[:, None]).T @ design + PENALTY * np.diag([1e-9, 1.0, 1.0])
    shift = np.array([[1.0, -centre[0], -centre[1]], [0, 1, 0], [0, 0, 1]])  # to uncentred coefficients
    jacobian = np.array([[-1 / b1, b0 / b1**2, 0], [0, -b2 / b1**2, 1 / b1], [0, -1 / b1, 0]]) @ shift
    return np.asarray(jacobian @ np.linalg.inv(information) @ jacobian.T, dtype=np.float64)
