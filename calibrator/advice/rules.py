"""Rules that turn a posterior into the largest learning rate at one interval and one horizon.

Every rule is one-sided: a statement about eta holds for 95 % of the posterior draws. The three boundaries are
already mixed in the draws, so that averaging over them needs no further step.
"""

from __future__ import annotations

import math
from decimal import ROUND_FLOOR, Context, Decimal

import numpy as np
from scipy.special import ndtri

from calibrator.advice.types import Rule
from calibrator.laws import posterior as laws
from calibrator.laws.posterior import (
    CEILING,
    CONSTANT,
    Floats,
    Posterior,
    collapse_by_schedule,
    log_eta_max,
    rounded,
)
from calibrator.laws.types import LEVEL, Estimate
from trainer.config import cumulative_learning_rate

CREDIBLE = 0.95
"""One-sided credible level of every rule."""


def lr_clock(horizon: int, warmup: int) -> float:
    """L(T) / eta in updates: T less what the warm-up leaves out; the same for every eta."""
    return cumulative_learning_rate(horizon, peak=1.0, warmup=warmup)


def log_eta_at_risk(posterior: Posterior, effective_interval: int, risk: float) -> Floats:
    """log eta at which P(prone) equals `risk`, one number a draw [D]: log eta_max + sigma_C Phi^-1(risk)."""
    return log_eta_max(posterior, effective_interval) + posterior.sigma_C * ndtri(risk)


def stable_limit(posterior: Posterior, effective_interval: int, risk: float) -> float:
    """Largest eta with P(prone) <= risk at the 95 % credible level; holds at any horizon. [derived]"""
    return _lower(log_eta_at_risk(posterior, effective_interval, risk))


def budget_rate(posterior: Posterior, horizon: int, risk: float, warmup: int) -> float:
    """Largest eta whose L(T) stays below B except with probability `risk`, at the 95 % level: about B/T."""
    reached = posterior.log_B + posterior.sigma_B * ndtri(risk)
    return _lower(reached - math.log(lr_clock(horizon, warmup)))


def conservative_limit(
    posterior: Posterior, effective_interval: int, horizon: int, risk: float, warmup: int
) -> float:
    """min(eta_max(S), B/T), both limits at the risk: the two constraints of arXiv 2607.01083 v3.

    Taking each limit at a risk and a credible level is ours.
    """
    stable = stable_limit(posterior, effective_interval, risk)
    return min(stable, budget_rate(posterior, horizon, risk, warmup))


def budget_limit(
    posterior: Posterior, effective_interval: int, horizon: int, risk: float, warmup: int
) -> float:
    """Largest eta with P(collapse by T) <= risk for 95 % of the draws. [derived]

    P(collapse by T) rises with eta in every draw, so the quantile over draws does too and bisection on
    log eta finds where it passes the risk. Never below `stable_limit`, because P(collapse by T) <= P(prone).
    """
    low = math.log(stable_limit(posterior, effective_interval, risk))
    high = low + math.log(1e6)
    for _ in range(30):  # to a factor of 1 + 1e-8
        middle = 0.5 * (low + high)
        eta = math.exp(middle)
        chances = collapse_chances(posterior, effective_interval, eta, horizon, warmup)
        if float(np.quantile(chances, CREDIBLE)) <= risk:
            low = middle
        else:
            high = middle
    return math.exp(low)


def rate_limit(
    posterior: Posterior, effective_interval: int, *, rule: Rule, horizon: int, risk: float, warmup: int
) -> float:
    """Largest eta that `rule` allows at S_eff = `effective_interval` for a run of `horizon` updates."""
    if rule == "stable":
        return stable_limit(posterior, effective_interval, risk)
    limit = conservative_limit if rule == "conservative" else budget_limit
    return limit(posterior, effective_interval, horizon, risk, warmup)


def collapse_chances(
    posterior: Posterior, effective_interval: int, eta: float, horizon: int, warmup: int
) -> Floats:
    """P(collapse by T) at eta, one number a draw [D]; the rate rises linearly over the warm-up."""
    ramp = min(horizon, warmup)
    rates = [*(eta * (step + 1) / warmup for step in range(ramp)), eta]
    return collapse_by_schedule(posterior, effective_interval, rates, [*([1] * ramp), horizon - ramp])


def limits_at(
    posterior: Posterior, effective_interval: int, *, horizon: int, risk: float, warmup: int
) -> dict[Rule, float]:
    """What each of the three rules allows at S_eff."""
    rules: tuple[Rule, ...] = ("stable", "conservative", "budget-limited")
    return {
        rule: rate_limit(posterior, effective_interval, rule=rule, horizon=horizon, risk=risk, warmup=warmup)
        for rule in rules
    }


def collapse_by(
    posterior: Posterior, effective_interval: int, eta: float, horizon: int, warmup: int
) -> Estimate:
    """P(collapse by T) at eta, 90 % interval; the estimate is the posterior mean, the chance for one run."""
    return mean_chance(collapse_chances(posterior, effective_interval, eta, horizon, warmup))


def mean_chance(chances: Floats) -> Estimate:
    """The chance of one run: the mean of chances [D], with their 90 % interval, which never leaves it out."""
    spread, mean = laws.interval(chances), rounded(float(np.mean(chances)))
    return Estimate(estimate=mean, low=min(spread.low, mean), high=max(spread.high, mean))


def boundary_at(posterior: Posterior, effective_interval: int) -> Estimate:
    """eta_max at S_eff with its 90 % interval, the three boundaries mixed; the estimate is the median."""
    return laws.interval(np.exp(log_eta_max(posterior, effective_interval)))


def crossover(posterior: Posterior, horizon: int, warmup: int) -> Estimate | None:
    """S_eff* where eta_max(S*) = B/T: below it B/T is the smaller limit, above it the boundary. [derived]

    1 where the boundary is the smaller one at every interval. `None` when more than a twentieth of the draws
    has no such interval (a constant boundary above B/T never crosses it).
    """
    draws = _crossover_draws(posterior, horizon, warmup)
    if np.mean(np.isinf(draws)) > (1 - LEVEL) / 2:
        return None
    return laws.interval(np.where(np.isinf(draws), np.max(draws[np.isfinite(draws)]), draws))


def round_down(rate: float, digits: int = 2) -> float:
    """`rate` > 0 rounded down to `digits` significant decimal digits: never above `rate`."""
    return float(Context(prec=digits, rounding=ROUND_FLOOR).create_decimal(Decimal(repr(rate))))


def _lower(log_draws: Floats) -> float:
    return float(np.exp(np.quantile(log_draws, 1 - CREDIBLE)))


def _crossover_draws(posterior: Posterior, horizon: int, warmup: int) -> Floats:
    log_rate = posterior.log_B - math.log(lr_clock(horizon, warmup))
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        power = np.exp((posterior.log_C - log_rate) / posterior.alpha)
        ceiling = 1 + np.exp(posterior.log_C - log_rate) - np.exp(posterior.log_C - posterior.log_eta_0)
    constant = np.where(posterior.log_eta_0 > log_rate, np.inf, 1.0)
    sloped = np.where(posterior.boundary == CEILING, ceiling, power)
    draws: Floats = np.maximum(np.where(posterior.boundary == CONSTANT, constant, sloped), 1.0)
    return draws
