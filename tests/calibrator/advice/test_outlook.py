"""Limits of the rates and chances of a collapse for an intended run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from calibrator.advice.outlook import MOST_RATES, outlook
from calibrator.laws.fit import FittedStratum
from calibrator.laws.posterior import Posterior
from calibrator.laws.types import Run

MakePosterior = Callable[..., Posterior]
MakeFitted = Callable[..., FittedStratum]


def test_limits_and_chances_follow_the_law(make_posterior: MakePosterior, make_fitted: MakeFitted) -> None:
    """Without any spread of the posterior all numbers are those of the formulas: C = 0.02, B = 0.05."""
    ahead = outlook(make_fitted(make_posterior()), horizon=400, risk=0.05, rule="stable")
    assert ahead is not None
    for limit in ahead.limits:
        allowed = 0.02 / limit.sync_interval * np.exp(0.25 * ndtri(0.05))
        assert limit.learning_rate == pytest.approx(allowed, rel=1e-5)
        spent = ndtr(np.log(400 * allowed / 0.05) / 0.3)
        assert limit.collapse_probability is not None
        assert limit.collapse_probability.estimate == pytest.approx(0.05 * spent, rel=1e-4)
    assert {pair.sync_interval for pair in ahead.collapse_probability} == {4, 16, 64}


def test_a_horizon_is_needed_for_chances_only(make_posterior: MakePosterior, make_fitted: MakeFitted) -> None:
    ahead = outlook(make_fitted(make_posterior()), horizon=None, risk=0.05, rule="stable")
    assert ahead is not None
    assert ahead.collapse_probability == []
    assert all(limit.collapse_probability is None for limit in ahead.limits)
    assert outlook(make_fitted(None), horizon=400, risk=0.05, rule="stable") is None


def test_of_many_rates_some_are_shown(make_posterior: MakePosterior, make_fitted: MakeFitted) -> None:
    runs = [
        Run(
            run=str(k),
            estimator="gmc",
            sync_interval=4,
            max_lag=3,
            learning_rate=1e-4 * 1.1**k,
            updates=400,
            verdict="stable",
            cumulative_lr=0.04 * 1.1**k,
        )
        for k in range(60)
    ]
    ahead = outlook(make_fitted(make_posterior(), runs), horizon=400, risk=0.05, rule="stable")
    assert ahead is not None
    rates = [pair.learning_rate for pair in ahead.collapse_probability]
    assert len(rates) == MOST_RATES
    assert (rates[0], rates[-1]) == (runs[0].learning_rate, runs[-1].learning_rate)
