"""Weakly informative priors, all relative to the scales of the runs themselves.

Learning rates are 1e-6 for a language model and 1e-3 for a tiny policy, so no absolute location can be
right; each location below is a geometric mean over the runs, which makes the posterior equivariant under a
change of the unit of eta. All priors are normal in the parameters named, independent, and proper, so that
the evidence of each boundary is defined.

    log eta_max(S_ref)  power     Normal(mean log eta, 2)        a factor of 27 either way at 90 %
    alpha               power     Normal(0.5, 0.75)              between no dependence and the paper's 1
    log C               ceiling   Normal(mean log(S eta), 2)
    log eta_0           ceiling, constant   Normal(mean log eta, 2)
    log B               all       Normal(mean log L, 2)
    log sigma_C         all       Normal(log 0.3, 0.6)           0.11 to 0.8 at 90 %
    log sigma_B         all       Normal(log 0.3, 0.6)           repeats of one setting differ by some 30 %
    gamma, 1 - beta     extended  Normal(0, 0.5)                 centred on the law that is tested

A sweep places its rates around the boundary, hence the locations; widths of 2 allow it to miss by far. The
spreads need a prior because a grid with a factor of two between rates cannot show how sharp the boundary is.
"""
# ruff: noqa: N815 (C, B, S and L are the symbols of the laws)

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrator.laws.boundaries import CEILING, POWER
from calibrator.laws.likelihood import Parameters
from calibrator.laws.observations import Observations

Floats = NDArray[np.float64]

LOCATION_SD = 2.0
ALPHA_MEAN, ALPHA_SD = 0.5, 0.75
LOG_SIGMA_MEAN, LOG_SIGMA_SD = float(np.log(0.3)), 0.6
EXPONENT_SD = 0.5


@dataclass(frozen=True)
class Scales:
    """Means of logs over the used runs; S_ref and eta_ref of law (ii) over the events."""

    log_S: float
    log_eta: float
    log_S_eta: float
    log_L: float
    log_S_events: float
    log_eta_events: float


@dataclass(frozen=True)
class Prior:
    """Independent normals on p parameters: place of the boundary, log sigma_C, log B, log sigma_B, and
    (extended) gamma and 1 - beta."""

    boundary: int
    scales: Scales
    mean: Floats
    sd: Floats


def scales(observations: Observations) -> Scales:
    """Scales of a set of runs; at least one run is needed."""
    events, survivors = observations.events, observations.survivors
    count = np.concatenate([events.count, survivors.count])
    log_S = np.log(np.concatenate([events.S, survivors.S]))
    log_eta = np.concatenate([events.log_eta, survivors.log_eta])
    log_L = np.concatenate([events.log_high, survivors.log_low])
    log_L = np.where(np.isfinite(log_L), log_L, log_eta)  # L = 0: no update made, one update's worth
    some = events if events.S.size else survivors
    return Scales(
        log_S=float(np.average(log_S, weights=count)),
        log_eta=float(np.average(log_eta, weights=count)),
        log_S_eta=float(np.average(log_S + log_eta, weights=count)),
        log_L=float(np.average(log_L, weights=count)),
        log_S_events=float(np.average(np.log(some.S), weights=some.count)),
        log_eta_events=float(np.average(some.log_eta, weights=some.count)),
    )


def prior(boundary: int, at: Scales, *, extended: bool = False, width: float = 1.0) -> Prior:
    """Prior of one boundary; `width` multiplies every standard deviation (sensitivity)."""
    place = {
        POWER: [(at.log_eta, LOCATION_SD), (ALPHA_MEAN, ALPHA_SD)],
        CEILING: [(at.log_S_eta, LOCATION_SD), (at.log_eta, LOCATION_SD)],
    }.get(boundary, [(at.log_eta, LOCATION_SD)])
    spread = (LOG_SIGMA_MEAN, LOG_SIGMA_SD)
    rows = [*place, spread, (at.log_L, LOCATION_SD), spread]
    if extended:
        rows += [(0.0, EXPONENT_SD), (0.0, EXPONENT_SD)]
    table = np.array(rows)
    return Prior(boundary, at, table[:, 0], width * table[:, 1])


def parameters(given: Prior, z: Floats) -> Parameters:
    """Parameters of D points z in units of the prior's standard deviation, shape [D, p]."""
    theta = given.mean + given.sd * z
    missing, zero = np.full(len(z), np.nan), np.zeros(len(z))
    log_C, alpha, log_eta_0 = missing, missing, missing
    if given.boundary == POWER:
        alpha = theta[:, 1]
        log_C = theta[:, 0] + alpha * given.scales.log_S
        rest = theta[:, 2:]
    elif given.boundary == CEILING:
        log_C, log_eta_0, rest = theta[:, 0], theta[:, 1], theta[:, 2:]
    else:
        log_eta_0, rest = theta[:, 0], theta[:, 1:]
    extended = rest.shape[1] > 3
    return Parameters(
        boundary=given.boundary,
        log_C=log_C,
        alpha=alpha,
        log_eta_0=log_eta_0,
        sigma_C=np.exp(rest[:, 0]),
        log_B=rest[:, 1],
        sigma_B=np.exp(rest[:, 2]),
        gamma=rest[:, 3] if extended else zero,
        beta=1 - rest[:, 4] if extended else zero + 1,
        log_S_ref=given.scales.log_S_events,
        log_eta_ref=given.scales.log_eta_events,
    )
