"""What a fit says about a run that is intended: the largest rate at each S, and P(collapse by T) at tested pairs."""

from __future__ import annotations

import numpy as np

from calibrator.advice.rules import collapse_by, rate_limit
from calibrator.advice.types import Rule
from calibrator.laws.evidence import realised_intervals
from calibrator.laws.fitted import FittedStratum
from calibrator.laws.observations import is_used
from calibrator.laws.posterior import rounded
from calibrator.laws.types import Limit, Outlook, PairOutlook, Run

MOST_RATES = 8
"""Rates at which P(collapse by T) is given; of more tested ones, evenly spaced ones are taken."""


def outlook(fitted: FittedStratum, *, horizon: int | None, risk: float, rule: Rule) -> Outlook | None:
    """Limits of `rule` at each swept S, and with a horizon of T updates P(collapse by T) at a constant rate.

    None where the stratum has no boundary. The rules `conservative` and `budget-limited` need a horizon.
    """
    posterior = fitted.posterior
    if posterior is None:
        return None
    used = [run for run in fitted.runs if is_used(run)]
    realised = realised_intervals(used)
    limits = []
    for S, effective in realised.items():
        eta = rounded(rate_limit(posterior, effective, rule=rule, horizon=horizon or 1, risk=risk, warmup=0))
        chance = None if horizon is None else collapse_by(posterior, effective, eta, horizon, warmup=0)
        limits.append(Limit(sync_interval=S, learning_rate=eta, collapse_probability=chance))
    pairs = [
        PairOutlook(
            sync_interval=S,
            learning_rate=eta,
            collapse_probability=collapse_by(posterior, effective, eta, horizon, warmup=0),
        )
        for S, effective in (realised.items() if horizon is not None else ())
        for eta in _rates(used)
        if horizon is not None
    ]
    return Outlook(horizon=horizon, risk=risk, rule=rule, limits=limits, collapse_probability=pairs)


def _rates(runs: list[Run]) -> list[float]:
    """Tested rates, ascending; of many, MOST_RATES of them."""
    rates = sorted({run.learning_rate for run in runs})
    chosen = np.unique(np.linspace(0, len(rates) - 1, MOST_RATES).round().astype(int))
    return [rates[i] for i in chosen]
