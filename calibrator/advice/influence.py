"""On which runs an answer rests: what would change without each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np
from pydantic import BaseModel, ConfigDict
from scipy.special import ndtri

from calibrator.advice.rules import CREDIBLE, log_eta_at_risk
from calibrator.laws.fit import design_posterior
from calibrator.laws.likelihood import Parameters, log_likelihood
from calibrator.laws.observations import observe
from calibrator.laws.posterior import Floats, Posterior, prone_probability, quantiles, rounded
from calibrator.laws.types import Run

ENOUGH_DRAWS = 200.0
"""Effective draws from which reweighting is trusted; below, the fit is made again without the run."""
MOST_REFITS = 4
TINY = 1e-9
"""Probabilities closer than this to 0 or 1 are all the same."""


class Influence(BaseModel):
    """The answer without one run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run: str
    verdict: str
    sync_interval: int
    learning_rate: float
    limit_without: float
    """Largest eta with P(prone) at most the risk, at the 95 % credible level, by the other runs."""
    prone_without: float
    """P(prone) at the point, mean over the posterior, by the other runs."""
    effective_draws: float
    """Draws that the reweighted posterior is worth."""
    refitted: bool
    """Whether the fit was made again without the run."""

    @property
    def reliable(self) -> bool:
        """Whether the numbers rest on enough draws, or on a fit of their own."""
        return self.refitted or self.effective_draws >= ENOUGH_DRAWS


def influences(
    posterior: Posterior, runs: Sequence[Run], effective_interval: int, eta: float, risk: float
) -> list[Influence]:
    """The runs in the fit, the most influential first: by how far P(prone) moves without each, on the probit scale.

    Draws are reweighted by 1 / likelihood of the run that is left out, which gives the posterior without it exactly
    (leave-one-out by importance sampling), across the three boundaries, too; where the weights fall on few
    draws the fit is made again. Assumed: the priors stay where all runs put them.
    """
    limits = log_eta_at_risk(posterior, effective_interval, risk)
    prone = prone_probability(posterior, effective_interval, eta)
    found = [_without(run, draw_log_likelihood(posterior, run), limits, prone) for run in runs]
    weak = sorted(range(len(runs)), key=lambda i: found[i].effective_draws)[:MOST_REFITS]
    for i in weak:
        if not found[i].reliable:
            others = design_posterior([run for j, run in enumerate(runs) if j != i])
            found[i] = _refitted(found[i], others, effective_interval, eta, risk)
    now = float(np.mean(prone))
    return sorted(found, key=lambda other: -_moved(now, other.prone_without))


def draw_log_likelihood(posterior: Posterior, run: Run) -> Floats:
    """log likelihood of one run under each draw [D], at gamma = 0 and beta = 1."""
    seen, total = observe([run]), np.empty(posterior.log_B.size)
    for boundary in np.unique(posterior.boundary):
        of = posterior.boundary == boundary
        part = {f.name: getattr(posterior, f.name)[of] for f in fields(Posterior) if f.name != "boundary"}
        zero = np.zeros(int(of.sum()))
        total[of] = log_likelihood(
            seen, Parameters(int(boundary), **part, gamma=zero, beta=zero + 1, log_S_ref=0.0, log_eta_ref=0.0)
        )
    return total


def _without(run: Run, log_terms: Floats, limits: Floats, prone: Floats) -> Influence:
    weight = np.exp(np.min(log_terms) - log_terms)
    weight /= weight.sum()
    return Influence(
        run=run.run,
        verdict=run.verdict.value,
        sync_interval=run.sync_interval,
        learning_rate=run.learning_rate,
        limit_without=rounded(_lower(limits, weight)),
        prone_without=rounded(float(prone @ weight)),
        effective_draws=rounded(float(1 / np.sum(weight**2))),
        refitted=False,
    )


def _refitted(
    found: Influence, others: Posterior | None, effective_interval: int, eta: float, risk: float
) -> Influence:
    if others is None:
        return found
    limits = log_eta_at_risk(others, effective_interval, risk)
    prone = prone_probability(others, effective_interval, eta)
    update = {
        "limit_without": rounded(_lower(limits, None)),
        "prone_without": rounded(float(np.mean(prone))),
        "refitted": True,
    }
    return found.model_copy(update=update)


def _moved(before: float, after: float) -> float:
    """Distance of two probabilities on the probit scale: from 1 to 2 % is as far as from 98 to 99 %."""
    return float(abs(np.subtract(*ndtri(np.clip([before, after], TINY, 1 - TINY)))))


def _lower(log_limits: Floats, weight: Floats | None) -> float:
    return float(np.exp(quantiles(log_limits, 1 - CREDIBLE, weight)))
