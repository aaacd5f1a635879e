"""Likelihood of the mixture cure model: is a run prone, and if so when does it collapse.

    P(prone | S, eta)     = Phi((log eta - log eta_max(S)) / sigma_C)
    log L_c | prone       ~ Normal(log B + gamma log(S/S_ref) + (1 - beta) log(eta/eta_ref), sigma_B)
    P(no collapse by L)   = 1 - P(prone) F(L),   F(0) = 0

The form is ours (assumed), a split-population survival model on the clock L; gamma = 0 and beta = 1 is the
published law t_c ~ B/eta. Everything is evaluated in logs, for D draws of the parameters at once.
"""
# ruff: noqa: N815 (C, B, S and L are the symbols of the laws)

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from calibrator.laws.boundaries import log_eta_max
from calibrator.laws.observations import Group, Observations

Floats = NDArray[np.float64]

CHUNK = 200_000
"""Draws x runs evaluated at once: keeps the temporaries in cache and the memory bounded."""
SMALL = 1e-200
NARROW = 1e-6
"""Below these (a probability; an interval's share of its tail) logs are used throughout: slower, but
neither underflow nor cancellation."""


@dataclass(frozen=True)
class Parameters:
    """D draws of one boundary's parameters; every array has shape [D]. Those it lacks are NaN."""

    boundary: int
    log_C: Floats
    alpha: Floats
    log_eta_0: Floats
    sigma_C: Floats
    log_B: Floats
    sigma_B: Floats
    gamma: Floats
    beta: Floats
    log_S_ref: float
    log_eta_ref: float


def event_terms(z_prone: Floats, z_low: Floats, z_high: Floats) -> Floats:
    """log P(prone) + log[F(high) - F(low)] from standard-normal scores; z_low < z_high."""
    mass = ndtr(z_high)
    share = mass - ndtr(z_low)
    value = ndtr(z_prone) * share
    poor = (value < SMALL) | (share < NARROW * mass)
    value[poor] = 1.0
    terms = np.log(value)
    terms[poor] = log_ndtr(z_prone[poor]) + _log_share(z_low[poor], z_high[poor])
    return np.asarray(terms, dtype=np.float64)


def survivor_terms(z_prone: Floats, z_end: Floats) -> Floats:
    """log[1 - P(prone) F(L)] as log[(1 - P) + P (1 - F)], which never subtracts close numbers."""
    safe = ndtr(-z_prone)
    value = safe + (1 - safe) * ndtr(-z_end)
    poor = value < SMALL
    value[poor] = 1.0
    terms = np.log(value)
    terms[poor] = np.logaddexp(log_ndtr(-z_prone[poor]), log_ndtr(z_prone[poor]) + log_ndtr(-z_end[poor]))
    return np.asarray(terms, dtype=np.float64)


def log_likelihood(observations: Observations, parameters: Parameters) -> Floats:
    """Log likelihood of all runs, shape [D]; -inf where a draw is impossible, never NaN."""
    draws = parameters.log_B.shape[0]
    rows = observations.events.S.size + observations.survivors.S.size
    step = max(1, CHUNK // max(rows, 1))
    parts = [
        _chunk(observations, _slice(parameters, slice(start, start + step)))
        for start in range(0, draws, step)
    ]
    total = np.concatenate(parts) if parts else np.empty(0)
    return np.where(np.isnan(total), -np.inf, total)


def _chunk(observations: Observations, parameters: Parameters) -> Floats:
    events, survivors = observations.events, observations.survivors
    died = event_terms(
        _prone_score(events, parameters),
        _budget_score(events, events.log_low, parameters),
        _budget_score(events, events.log_high, parameters),
    )
    lived = survivor_terms(
        _prone_score(survivors, parameters), _budget_score(survivors, survivors.log_low, parameters)
    )
    return np.asarray(died @ events.count + lived @ survivors.count, dtype=np.float64)


def _log_share(z_low: Floats, z_high: Floats) -> Floats:
    """log[F(high) - F(low)] in logs throughout; the upper tail is the accurate one on the right-hand side."""
    flip = z_low > 0
    larger = log_ndtr(np.where(flip, -z_low, z_high))
    smaller = log_ndtr(np.where(flip, -z_high, z_low))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(larger + np.log(-np.expm1(smaller - larger)), dtype=np.float64)


def _prone_score(group: Group, p: Parameters) -> Floats:
    intervals, which = group.intervals
    boundary = log_eta_max(
        p.boundary, intervals, log_C=p.log_C[:, None], alpha=p.alpha[:, None], log_eta_0=p.log_eta_0[:, None]
    )
    return np.asarray((group.log_eta - boundary[:, which]) / p.sigma_C[:, None], dtype=np.float64)


def _budget_score(group: Group, log_L: Floats, p: Parameters) -> Floats:
    budget = p.log_B[:, None]
    if np.any(p.gamma != 0) or np.any(p.beta != 1):
        budget = budget + p.gamma[:, None] * (np.log(group.S) - p.log_S_ref)
        budget = budget + (1 - p.beta)[:, None] * (group.log_eta - p.log_eta_ref)
    return np.asarray((log_L - budget) / p.sigma_B[:, None], dtype=np.float64)


def _slice(p: Parameters, part: slice) -> Parameters:
    return Parameters(
        p.boundary,
        p.log_C[part],
        p.alpha[part],
        p.log_eta_0[part],
        p.sigma_C[part],
        p.log_B[part],
        p.sigma_B[part],
        p.gamma[part],
        p.beta[part],
        p.log_S_ref,
        p.log_eta_ref,
    )
