"""Maximum likelihood of one boundary: what the runs say without any prior."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize

from calibrator.laws.boundaries import CEILING, CONSTANT, POWER
from calibrator.laws.likelihood import Parameters, log_likelihood
from calibrator.laws.observations import Observations
from calibrator.laws.posterior import rounded
from calibrator.laws.priors import Scales, parameters, prior
from calibrator.laws.sampling import Floats, with_gradient
from calibrator.laws.types import MaximumLikelihood

EDGE = 6.0
"""Half-width of the box that is searched, in prior standard deviations: a spread may be 40 times smaller or larger than
its prior's centre, a place e^12 times."""
PRECISION = 1e-8
"""Relative gain of the log likelihood at which the search ends: six digits of it are reported."""
FLAT = 0.05
"""Fall of the log likelihood, from the maximum to the edge of the box, below which a parameter is open."""

OWN = {POWER: ("C", "alpha"), CEILING: ("C", "eta_0"), CONSTANT: ("eta_0",)}


def maximum_likelihood(
    observations: Observations, at: Scales, boundary: int, start: Floats
) -> MaximumLikelihood:
    """The largest likelihood of one boundary at gamma = 0 and beta = 1, searched from `start` [p] (prior units).

    The prior serves as the unit of each parameter only. Where the runs separate completely the likelihood rises until
    sigma_C is zero; `open` then names sigma_C.
    """
    given = prior(boundary, at)

    def density(z: Floats) -> Floats:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            return log_likelihood(observations, parameters(given, z))

    z = _climb(density, np.clip(start, -EDGE, EDGE))
    found = parameters(given, z[None])
    names = (*OWN[boundary], "sigma", "B", "budget_sigma")
    return MaximumLikelihood(
        **{name: rounded(value) for name, value in _values(found).items() if name in names},
        log_likelihood=rounded(float(density(z[None])[0])),
        open=[name for name, flat in zip(names, _open(density, z), strict=True) if flat],
    )


def _climb(density: Callable[[Floats], Floats], start: Floats) -> Floats:
    def objective(z: Floats) -> tuple[float, Floats]:
        value, gradient = with_gradient(density, z)
        return -value, -gradient

    box = [(-EDGE, EDGE)] * start.size
    found = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=box,
        options={"maxiter": 200, "ftol": PRECISION},
    )
    return np.asarray(found.x, dtype=np.float64)


def _open(density: Callable[[Floats], Floats], z: Floats) -> list[bool]:
    """For each parameter whether it can go to an edge of the box, the others fixed, at next to no loss."""
    edges = np.concatenate([np.where(np.eye(z.size) > 0, side * EDGE, z) for side in (-1, 1)])
    fall = float(density(z[None])[0]) - density(edges).reshape(2, -1)
    return [bool(flat) for flat in np.any(fall < FLAT, axis=0)]


def _values(at: Parameters) -> dict[str, float]:
    logs = {"C": at.log_C, "eta_0": at.log_eta_0, "B": at.log_B}
    plain = {"alpha": at.alpha, "sigma": at.sigma_C, "budget_sigma": at.sigma_B}
    return {name: float(np.exp(value[0])) for name, value in logs.items()} | {
        name: float(value[0]) for name, value in plain.items()
    }
