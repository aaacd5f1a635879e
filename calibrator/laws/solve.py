"""Posterior of the three boundaries for one set of observations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from scipy.special import logsumexp

from calibrator.laws.boundaries import CEILING, CONSTANT, POWER
from calibrator.laws.likelihood import Parameters, log_likelihood
from calibrator.laws.naive import Naive
from calibrator.laws.observations import Observations, thinned
from calibrator.laws.posterior import Posterior
from calibrator.laws.priors import LOG_SIGMA_MEAN, Prior, Scales, parameters, prior
from calibrator.laws.sampling import Floats, LogDensity, Weighted, sample, sobol

DRAWS = 4000
MOST_POINTS, FEWEST_POINTS = 4096, 128
EVALUATIONS = 2_500_000
"""Draws x runs in one round of sampling; with many runs the posterior is normal and few points do."""
MANY_ROWS, ROUGH_ROWS = 1500, 750
"""Distinct rows above which modes and curvature are found on a part of them, and about how many that are."""
SCOUTS = 128
"""Points of the prior among which a second start is sought."""

Starts = Mapping[int, list[Floats]]
"""For each boundary, where to look for modes, in units of the prior's standard deviation."""


@dataclass(frozen=True)
class Solution:
    """Weighted draws of each fitted boundary, by its index; its weights sum to one."""

    draws: dict[int, Posterior]
    weights: dict[int, Floats]
    gamma: dict[int, Floats]
    beta: dict[int, Floats]
    log_evidence: dict[int, float]
    share: dict[int, float]
    """Posterior probability of each boundary, prior odds even."""
    modes: dict[int, list[Floats]]
    effective: dict[int, float]
    """Effective sample size behind each boundary."""

    @property
    def chosen(self) -> int:
        """The boundary with the largest share."""
        return max(self.share, key=lambda boundary: self.share[boundary])

    @cached_property
    def pooled(self) -> tuple[Posterior, Floats]:
        """Draws of all boundaries, and weights that sum to one over all of them."""
        parts = list(self.draws.values())
        columns = {
            f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Posterior)
        }
        return Posterior(**columns), np.concatenate([self.share[b] * self.weights[b] for b in self.draws])


def solve(
    observations: Observations,
    at: Scales,
    starts: Starts,
    *,
    width: float = 1.0,
    extended: bool = False,
    most_points: int = MOST_POINTS,
) -> Solution:
    """Sample each boundary in `starts` and weigh them by evidence.

    Args:
        observations: at least one run.
        at: scales of the priors.
        starts: boundaries to fit, each with its starting points.
        width: factor on the priors' standard deviations.
        extended: let gamma and beta vary; the headline has gamma = 0 and beta = 1.
        most_points: upper limit of sampling points per boundary.
    """
    points = point_count(observations, most_points)
    priors = {boundary: prior(boundary, at, extended=extended, width=width) for boundary in starts}
    found = {
        boundary: _sample(observations, priors[boundary], starts[boundary], points) for boundary in starts
    }
    return _mix(priors, found)


def is_large(observations: Observations) -> bool:
    """Whether modes are sought on a part of the rows, and the priors no longer matter."""
    return _row_count(observations) > MANY_ROWS


def point_count(observations: Observations, most: int = MOST_POINTS) -> int:
    """Power of two within the limits that keeps one round within EVALUATIONS."""
    affordable = 2 ** int(np.log2(max(EVALUATIONS / max(_row_count(observations), 1), 1)))
    return int(np.clip(affordable, FEWEST_POINTS, most))


def first_starts(observations: Observations, at: Scales, naive: Naive | None) -> Starts:
    """Two starts for each boundary: the best two of the naive answer, the prior's centre and SCOUTS."""
    starts = {}
    seen = thinned(observations, ROUGH_ROWS) if is_large(observations) else observations
    for boundary in (POWER, CEILING, CONSTANT):
        given = prior(boundary, at)
        guesses = [np.zeros(given.mean.size)]
        if naive is not None:
            guesses.append(_from_naive(given, naive))
        u = sobol(SCOUTS, given.mean.size)
        pool = np.vstack([*guesses, np.sqrt(2) * (u - 0.5) * 2])
        height = _density(seen, given)(pool) - 0.5 * np.sum(pool**2, axis=1)
        starts[boundary] = [pool[i] for i in np.argsort(-height, kind="stable")[:2]]
    return starts


def extended_starts(solution: Solution) -> Starts:
    """The headline's mode of the chosen boundary, at gamma = 0 and beta = 1.

    gamma and beta describe when prone runs die, on which the form of the boundary has next to no bearing.
    """
    return {solution.chosen: [np.append(solution.modes[solution.chosen][0], [0.0, 0.0])]}


def resample(solution: Solution, draws: int = DRAWS) -> Posterior:
    """Equally weighted draws by systematic resampling, deterministic."""
    pooled, weight = solution.pooled
    edges = np.cumsum(weight)
    index = np.searchsorted(edges, (np.arange(draws) + 0.5) / draws * edges[-1])
    return Posterior(**{f.name: getattr(pooled, f.name)[index] for f in fields(Posterior)})


def _row_count(observations: Observations) -> int:
    return observations.events.S.size + observations.survivors.S.size


def _sample(observations: Observations, given: Prior, starts: list[Floats], points: int) -> Weighted:
    rough = _density(thinned(observations, ROUGH_ROWS), given) if is_large(observations) else None
    return sample(_density(observations, given), starts, points=points, rough=rough)


def _density(observations: Observations, given: Prior) -> LogDensity:
    def density(z: Floats) -> Floats:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            return log_likelihood(observations, parameters(given, z))

    return density


def _from_naive(given: Prior, naive: Naive) -> Floats:
    at = given.scales
    height = naive.log_C - naive.alpha * at.log_S
    place = {
        POWER: [height, naive.alpha],
        CEILING: [height + at.log_S, height + 1.0],
        CONSTANT: [height],
    }[given.boundary]
    theta = np.array([*place, naive.log_sigma, at.log_L, LOG_SIGMA_MEAN])
    return np.clip((theta - given.mean) / given.sd, -3, 3)


def _mix(priors: Mapping[int, Prior], found: Mapping[int, Weighted]) -> Solution:
    evidence = {boundary: sampled.log_evidence for boundary, sampled in found.items()}
    total = logsumexp(list(evidence.values()))
    share = {boundary: float(np.exp(value - total)) for boundary, value in evidence.items()}
    parts = {boundary: parameters(priors[boundary], sampled.z) for boundary, sampled in found.items()}
    return Solution(
        draws={b: _draws(part) for b, part in parts.items()},
        weights={b: sampled.weight for b, sampled in found.items()},
        gamma={b: part.gamma for b, part in parts.items()},
        beta={b: part.beta for b, part in parts.items()},
        log_evidence=evidence,
        share=share,
        modes={b: [sampled.mode] for b, sampled in found.items()},
        effective={b: sampled.effective for b, sampled in found.items()},
    )


def _draws(part: Parameters) -> Posterior:
    return Posterior(
        boundary=np.full(part.log_B.size, part.boundary, dtype=np.int64),
        log_C=part.log_C,
        alpha=part.alpha,
        log_eta_0=part.log_eta_0,
        sigma_C=part.sigma_C,
        log_B=part.log_B,
        sigma_B=part.sigma_B,
    )
