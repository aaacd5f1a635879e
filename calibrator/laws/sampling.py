"""Posterior of a few parameters by importance sampling on Sobol points; deterministic.

Works in units in which the prior is standard normal. The proposal is a mixture of multivariate t at the
modes found and a wide one at the prior, so that the weights stay bounded where a mode was missed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import gammaincinv, gammaln, logsumexp, ndtri

Floats = NDArray[np.float64]
LogDensity = Callable[[Floats], Floats]
"""Maps [D, p] to [D]."""

SEED = 20260701
FREEDOM = 5.0
"""Degrees of freedom of the proposals: tails heavier than any normal posterior's."""
INFLATION = 1.2
"""Factor on the Laplace standard deviations: too wide costs a little, too narrow costs validity."""
PRIOR_SHARE = 0.1
ENOUGH = 0.2
"""Effective share of the points below which the proposal is refitted."""
LEAST = 50.0
"""Effective points without which sampling goes on, up to MOST_ROUNDS."""
ROUNDS, MOST_ROUNDS = 4, 12
POLISH = 3
STEP = 1e-3
"""Finite-difference step, in prior standard deviations."""
FLAT = 0.1
"""Least curvature that a proposal is given; the prior's own is one."""
IMPOSSIBLE = -1e10


@dataclass(frozen=True)
class Weighted:
    """n points with normalised weights."""

    z: Floats
    """[n, p]."""
    weight: Floats
    """[n], sums to one."""
    log_evidence: float
    mode: Floats
    """[p], the best point found."""
    effective: float
    """Effective sample size of the weights, in points."""


@dataclass(frozen=True)
class _Component:
    mean: Floats
    factor: Floats
    """Lower Cholesky factor of the scale matrix."""
    log_share: float


def sample(
    log_likelihood: LogDensity, starts: Sequence[Floats], *, points: int, rough: LogDensity | None = None
) -> Weighted:
    """Weighted sample of standard-normal prior times likelihood.

    Args:
        log_likelihood: of points [D, p] in units of the prior's standard deviation.
        starts: where to look for modes, each [p].
        points: Sobol points in each round; a power of two keeps them balanced.
        rough: a cheaper likelihood of the same size, on which modes and curvature are found.
    """
    log_density = _with_prior(log_likelihood)
    search = log_density if rough is None else _with_prior(rough)
    modes = _distinct([maximise(search, start) for start in starts], search)
    scales = [np.asarray(np.linalg.inv(curvature(search, mode)), dtype=np.float64) for mode in modes]
    if rough is not None:
        modes = [_polish(log_density, mode, scale) for mode, scale in zip(modes, scales, strict=True)]
    components = _laplace(modes, scales, log_density)
    uniform = sobol(points, starts[0].size + 2)
    for turn in range(MOST_ROUNDS):
        z = _propose(components, uniform)
        log_weight = log_density(z) - _log_proposal(components, z)
        weight = np.exp(log_weight - logsumexp(log_weight))
        effective = float(1 / np.sum(weight**2))
        if effective >= (max(ENOUGH * points, LEAST) if turn < ROUNDS else LEAST):
            break
        components = _refit(components, z, log_weight)
    evidence = float(logsumexp(log_weight) - np.log(points))
    return Weighted(z, weight, evidence, modes[0], effective)


def sobol(points: int, dimensions: int) -> Floats:
    """Sobol points in the open unit cube, shifted by a fixed random vector; shape [points, dimensions]."""
    from scipy.stats import qmc  # half a second to import, and only fits need it

    shift = np.random.default_rng(SEED).uniform(size=dimensions)
    u = (qmc.Sobol(dimensions, scramble=False).random(points) + shift) % 1.0
    return np.clip(u, 1e-12, 1 - 1e-12)


def maximise(log_density: LogDensity, start: Floats) -> Floats:
    """Local maximum of the density by BFGS, with central differences evaluated in one call."""

    def objective(z: Floats) -> tuple[float, Floats]:
        value, gradient = with_gradient(log_density, z)
        return -value, -gradient

    found = minimize(objective, start, jac=True, method="BFGS", options={"maxiter": 100, "gtol": 1e-4})
    return np.asarray(found.x, dtype=np.float64)


def curvature(log_density: LogDensity, at: Floats) -> Floats:
    """Negative Hessian by central differences, made positive definite; shape [p, p].

    The prior alone has curvature one. An eigenvalue below a tenth of that is a flat or rising direction of
    the likelihood: it is set to a tenth, and the refit of the proposal does the rest.
    """
    p = at.size
    e = STEP * np.eye(p)
    pairs = (e[:, None] + e[None, :]).reshape(-1, p), (e[:, None] - e[None, :]).reshape(-1, p)
    values = log_density(at + np.vstack([pairs[0], pairs[1], -pairs[1], -pairs[0]])).reshape(4, p, p)
    hessian = (values[0] - values[1] - values[2] + values[3]) / (4 * STEP**2)
    eigenvalues, vectors = np.linalg.eigh(-(hessian + hessian.T) / 2)
    return np.asarray((vectors * np.maximum(eigenvalues, FLAT)) @ vectors.T, dtype=np.float64)


def _with_prior(log_likelihood: LogDensity) -> LogDensity:
    def log_density(z: Floats) -> Floats:
        log_prior = -0.5 * np.sum(z**2, axis=1) - 0.5 * z.shape[1] * np.log(2 * np.pi)
        return np.asarray(np.maximum(log_likelihood(z) + log_prior, IMPOSSIBLE), dtype=np.float64)

    return log_density


def with_gradient(log_density: LogDensity, z: Floats) -> tuple[float, Floats]:
    """Value and gradient [p] at one point [p], by central differences in a single call."""
    steps = STEP * np.eye(z.size)
    values = log_density(np.vstack([z, z + steps, z - steps]))
    up, down = np.split(values[1:], 2)
    return float(values[0]), (up - down) / (2 * STEP)


def _polish(log_density: LogDensity, z: Floats, scale: Floats) -> Floats:
    """A few Newton steps with a curvature found elsewhere; a step that does not climb ends them."""
    value, gradient = with_gradient(log_density, z)
    for _ in range(POLISH):
        trial = z + scale @ gradient
        new_value, new_gradient = with_gradient(log_density, trial)
        if new_value <= value:
            break
        z, value, gradient = trial, new_value, new_gradient
    return z


def _distinct(found: Sequence[Floats], log_density: LogDensity) -> list[Floats]:
    """The modes, best first, without repeats and without those that carry no mass."""
    height = log_density(np.vstack(found))
    kept: list[Floats] = []
    for i in np.argsort(-height, kind="stable"):
        far = all(np.linalg.norm(found[i] - other) > 0.1 for other in kept)
        if far and height[i] > height.max() - 10:
            kept.append(found[i])
    return kept


def _laplace(modes: Sequence[Floats], scales: Sequence[Floats], log_density: LogDensity) -> list[_Component]:
    height = log_density(np.vstack(modes))
    mass = np.array([h + np.linalg.slogdet(s)[1] / 2 for h, s in zip(height, scales, strict=True)])
    # Every mode keeps some points: its Laplace mass may be far off.
    share = 0.5 * np.exp(mass - logsumexp(mass)) + 0.5 / len(modes)
    p = modes[0].size
    found = [
        _component(mode, s, (1 - PRIOR_SHARE) * w) for mode, s, w in zip(modes, scales, share, strict=True)
    ]
    return [*found, _Component(np.zeros(p), np.eye(p), float(np.log(PRIOR_SHARE)))]


def _component(mean: Floats, covariance: Floats, share: float) -> _Component:
    factor = np.asarray(INFLATION * np.linalg.cholesky(covariance), dtype=np.float64)
    return _Component(mean, factor, float(np.log(share)))


def _refit(components: Sequence[_Component], z: Floats, log_weight: Floats) -> list[_Component]:
    """Replace the proposal by a t with the weighted moments, beside the old components at a third."""
    weight = _flattened(log_weight, least=4 * z.shape[1])
    mean = weight @ z
    centred = z - mean
    covariance = (centred * weight[:, None]).T @ centred + 1e-6 * np.eye(z.shape[1])
    moments = _component(mean, covariance, 2 / 3)
    old = [_Component(c.mean, c.factor, c.log_share - float(np.log(3))) for c in components]
    return [moments, *old]


def _flattened(log_weight: Floats, least: int) -> Floats:
    """Normalised weights, flattened until they rest on enough points to have moments."""
    while True:
        weight = np.exp(log_weight - logsumexp(log_weight))
        if np.sum(weight**2) * least <= 1 or np.ptp(log_weight) < 1:
            return np.asarray(weight, dtype=np.float64)
        log_weight = log_weight / 2


def _propose(components: Sequence[_Component], uniform: Floats) -> Floats:
    """One coordinate chooses the component, one the tail, the others the direction."""
    edges = np.cumsum(np.exp([c.log_share for c in components]))
    chosen = np.minimum(np.searchsorted(edges, uniform[:, 0]), len(components) - 1)
    tail = np.sqrt(FREEDOM / (2 * gammaincinv(FREEDOM / 2, uniform[:, 1])))
    normal: Floats = ndtri(uniform[:, 2:]) * tail[:, None]
    z = np.empty_like(normal)
    for k, component in enumerate(components):
        z[chosen == k] = component.mean + normal[chosen == k] @ component.factor.T
    return z


def _log_proposal(components: Sequence[_Component], z: Floats) -> Floats:
    p = z.shape[1]
    constant = gammaln((FREEDOM + p) / 2) - gammaln(FREEDOM / 2) - 0.5 * p * np.log(FREEDOM * np.pi)
    terms = []
    for c in components:
        scaled = np.linalg.solve(c.factor, (z - c.mean).T)
        kernel = -0.5 * (FREEDOM + p) * np.log1p(np.sum(scaled**2, axis=0) / FREEDOM)
        terms.append(c.log_share + constant - np.sum(np.log(np.diag(c.factor))) + kernel)
    return np.asarray(logsumexp(np.array(terms), axis=0), dtype=np.float64)
