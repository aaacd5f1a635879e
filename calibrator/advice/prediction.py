"""How many of n runs will collapse, predicted before they are made, and set beside what happened."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, Context, Decimal
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict
from scipy.special import gammaln, xlog1py, xlogy

from calibrator.advice.rules import CREDIBLE, collapse_chances, mean_chance
from calibrator.laws.posterior import Floats, Posterior, rounded
from calibrator.laws.types import LEVEL, Estimate

VERY_LIKELY = 0.95
"""P(collapse by T) of a rate that is unsafe on purpose, at the one-sided 95 % credible level."""
MOST_UNSAFE = 1e3
"""Largest factor over the recommended rate at which an unsafe one is sought."""

Role = Literal["recommended", "unsafe"]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PredictedCount(_Record):
    """How many of `runs` runs collapse: chances over the posterior draws, then binomial within each draw. [derived]"""

    runs: int
    low: int
    high: int
    """Equal-tailed predictive interval, both ends included; at least `level` of the probability lies in it."""
    level: float = LEVEL
    probabilities: list[float]
    """P(exactly k collapse) for k = 0 .. runs."""


class CheckedSetting(_Record):
    """Runs of one setting, predicted and observed."""

    role: Role
    sync_interval: int
    learning_rate: float
    horizon: int
    """T, in updates."""
    collapse_probability: Estimate
    """P(collapse by T), from the fit without these runs."""
    predicted: PredictedCount
    """Of the runs whose verdict decides: stable, interrupted, degraded, collapsed or diverged."""
    trials: list[int]
    verdicts: list[str]
    collapsed: int
    """How many of the runs that count collapsed or diverged."""
    inside: bool
    """Whether `collapsed` lies in the predictive interval; false where no run counts."""


class ConfirmationRecord(_Record):
    """Content of `confirmation.json`: what `calibrate confirm` predicted and saw."""

    schema_version: int = 1
    estimator: str
    fitted_runs: int
    """Runs that the prediction rests on; none of those below is among them."""
    settings: list[CheckedSetting]
    as_predicted: bool
    """Whether every count lies in its interval."""


def predict_count(chances: Floats, runs: int) -> PredictedCount:
    """Predictive distribution of the number of collapses among `runs` runs, given chances [D] of one run.

    P(k) = mean over draws of Binomial(k; n, p): runs are independent given the draw, so that what is not known about
    the laws is common to all of them (a beta-binomial with the posterior in the place of the beta).
    """
    k = np.arange(runs + 1)
    ways = gammaln(runs + 1) - gammaln(k + 1) - gammaln(runs - k + 1)
    p = np.asarray(chances, dtype=np.float64)[:, None]
    mass = np.exp(ways + xlogy(k, p) + xlog1py(runs - k, -p)).mean(axis=0)
    mass /= mass.sum()
    below = np.cumsum(mass)
    tail = (1 - LEVEL) / 2
    ends = [int(np.searchsorted(below, q * (1 - 1e-12))) for q in (tail, 1 - tail)]
    return PredictedCount(
        runs=runs, low=ends[0], high=min(ends[1], runs), probabilities=[rounded(x) for x in mass]
    )


def check(
    *,
    role: Role,
    sync_interval: int,
    learning_rate: float,
    horizon: int,
    chances: Floats,
    trials: Sequence[tuple[int, str, bool | None]],
) -> CheckedSetting:
    """Set the prediction beside the runs: number, verdict, and whether it collapsed (None: it does not say)."""
    decided = [died for _, _, died in trials if died is not None]
    predicted, collapsed = predict_count(chances, len(decided)), sum(decided)
    return CheckedSetting(
        role=role,
        sync_interval=sync_interval,
        learning_rate=learning_rate,
        horizon=horizon,
        collapse_probability=mean_chance(chances),
        predicted=predicted,
        trials=[number for number, _, _ in trials],
        verdicts=[verdict for _, verdict, _ in trials],
        collapsed=collapsed,
        inside=bool(decided) and predicted.low <= collapsed <= predicted.high,
    )


def unsafe_rate(
    posterior: Posterior, effective_interval: int, *, above: float, horizon: int, warmup: int
) -> float | None:
    """Smallest eta, rounded up to two digits, whose runs very likely collapse by T; more than `above`.

    P(collapse by T) >= VERY_LIKELY for 95 % of the draws; it rises with eta in every draw, so bisection on log eta
    finds the place. None where even MOST_UNSAFE times `above` is not that likely to collapse. [derived]
    """

    def likely(log_eta: float) -> bool:
        chances = collapse_chances(posterior, effective_interval, math.exp(log_eta), horizon, warmup)
        return float(np.quantile(chances, 1 - CREDIBLE)) >= VERY_LIKELY

    low, high = math.log(above), math.log(above * MOST_UNSAFE)
    if not likely(high):
        return None
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if likely(middle) else (middle, high)
    return _round_up(math.exp(high))


def _round_up(rate: float, digits: int = 2) -> float:
    return float(Context(prec=digits, rounding=ROUND_CEILING).create_decimal(Decimal(repr(rate))))
