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
"""Half-width of the box that is searched, in prior standard deviations: sigma between 0.008 and 11, and a factor of
e^12 either way for places. A maximum at its edge is none: the runs leave that parameter open."""
NEAR = 0.01

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
        open=[name for name, place in zip(names, z, strict=True) if abs(place) > EDGE - NEAR],
    )


def _climb(density: Callable[[Floats], Floats], start: Floats) -> Floats:
    def objective(z: Floats) -> tuple[float, Floats]:
        value, gradient = with_gradient(density, z)
        return -value, -gradient

    box = [(-EDGE, EDGE)] * start.size
    found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=box, options={"maxiter": 200})
    return np.asarray(found.x, dtype=np.float64)


def _values(at: Parameters) -> dict[str, float]:
    logs = {"C": at.log_C, "eta_0": at.log_eta_0, "B": at.log_B}
    plain = {"alpha": at.alpha, "sigma": at.sigma_C, "budget_sigma": at.sigma_B}
    return {name: float(np.exp(value[0])) for name, value in logs.items()} | {
        name: float(value[0]) for name, value in plain.items()
    }
