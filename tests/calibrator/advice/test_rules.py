from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from calibrator.advice import rules
from calibrator.laws.posterior import CEILING, CONSTANT, POWER, Posterior, collapse_probability
from trainer.config import learning_rate_at

MakePosterior = Callable[..., Posterior]
INTERVALS = (1, 4, 16, 64, 256)
ALL_RULES = ("stable", "conservative", "budget-limited")


@pytest.mark.parametrize(
    ("boundary", "eta_max"), [(POWER, 0.02 / 16), (CEILING, 1 / (1 / 5e-3 + 15 / 0.02)), (CONSTANT, 5e-3)]
)
def test_stable_limit_is_the_lower_quantile_of_the_boundary(
    make_posterior: MakePosterior, boundary: int, eta_max: float
) -> None:
    posterior = make_posterior(boundary)
    expected = eta_max * math.exp(0.25 * norm.ppf(0.05))
    assert rules.stable_limit(posterior, 16, 0.05) == pytest.approx(expected)


def test_stable_limit_holds_for_95_percent_of_the_draws(mixed: Posterior) -> None:
    limit = rules.stable_limit(mixed, 16, 0.05)
    safe = rules.log_eta_at_risk(mixed, 16, 0.05) >= math.log(limit)
    assert np.mean(safe) == pytest.approx(0.95, abs=0.005)


@pytest.mark.parametrize("rule", ALL_RULES)
@settings(deadline=None, max_examples=40)
@given(low=st.floats(0.005, 0.4), step=st.floats(1.01, 1.2))
def test_a_smaller_risk_never_allows_a_larger_rate(
    mixed: Posterior, rule: str, low: float, step: float
) -> None:
    small, large = (
        rules.rate_limit(mixed, 16, rule=rule, horizon=500, risk=risk, warmup=10)
        for risk in (low, low * step)
    )
    assert small <= large * (1 + 1e-9)


@pytest.mark.parametrize("rule", ALL_RULES)
def test_a_longer_lag_never_allows_a_larger_rate(mixed: Posterior, rule: str) -> None:
    limits = [rules.rate_limit(mixed, S, rule=rule, horizon=500, risk=0.05, warmup=10) for S in INTERVALS]
    assert limits == sorted(limits, reverse=True)


@pytest.mark.parametrize("rule", ALL_RULES)
@settings(deadline=None, max_examples=40)
@given(unit=st.floats(1e-4, 1e4))
def test_limits_scale_with_the_unit_of_the_learning_rate(mixed: Posterior, rule: str, unit: float) -> None:
    shift = math.log(unit)
    scaled = replace(
        mixed, log_C=mixed.log_C + shift, log_eta_0=mixed.log_eta_0 + shift, log_B=mixed.log_B + shift
    )
    here, there = (
        rules.rate_limit(given, 16, rule=rule, horizon=500, risk=0.05, warmup=10) for given in (mixed, scaled)
    )
    assert there == pytest.approx(unit * here, rel=1e-6)


def test_conservative_takes_the_smaller_of_both_limits(make_posterior: MakePosterior) -> None:
    posterior = make_posterior()
    budget = 0.05 * math.exp(0.3 * norm.ppf(0.05)) / 10_000
    assert rules.budget_rate(posterior, 10_000, 0.05, 0) == pytest.approx(budget)
    assert rules.conservative_limit(posterior, 16, 10_000, 0.05, 0) == pytest.approx(budget)
    stable = rules.stable_limit(posterior, 16, 0.05)
    assert rules.conservative_limit(posterior, 16, 10, 0.05, 0) == pytest.approx(stable)


@settings(deadline=None, max_examples=40)
@given(horizon=st.integers(10, 5000))
def test_budget_limit_spends_exactly_the_risk(mixed: Posterior, horizon: int) -> None:
    eta = rules.budget_limit(mixed, 16, horizon, 0.05, warmup=10)
    clock = rules.lr_clock(horizon, 10)
    worst = np.quantile(collapse_probability(mixed, 16, eta, eta * clock), 0.95)
    assert worst == pytest.approx(0.05, rel=1e-4)
    assert eta >= rules.stable_limit(mixed, 16, 0.05) * (1 - 1e-9)


def test_budget_limit_tends_to_the_stable_limit_as_the_horizon_grows(mixed: Posterior) -> None:
    stable = rules.stable_limit(mixed, 16, 0.05)
    limits = [rules.budget_limit(mixed, 16, horizon, 0.05, 0) for horizon in (10, 100, 1000, 10**6)]
    assert limits == sorted(limits, reverse=True)
    assert limits[-1] == pytest.approx(stable, rel=1e-6)


@settings(deadline=None, max_examples=40)
@given(horizon=st.integers(1, 300), warmup=st.integers(0, 50))
def test_lr_clock_is_the_sum_of_the_applied_rates(horizon: int, warmup: int) -> None:
    applied = sum(learning_rate_at(u, peak=3e-4, warmup=warmup) for u in range(horizon))
    assert 3e-4 * rules.lr_clock(horizon, warmup) == pytest.approx(applied)


@settings(deadline=None, max_examples=40)
@given(eta=st.floats(1e-5, 1e-1), horizon=st.integers(1, 10_000))
def test_collapse_by_the_horizon_is_a_probability_within_its_interval(
    mixed: Posterior, eta: float, horizon: int
) -> None:
    chance = rules.collapse_by(mixed, 16, eta, horizon, warmup=10)
    assert 0 <= chance.low <= chance.estimate <= chance.high <= 1


def test_at_the_stable_limit_the_upper_end_of_the_collapse_probability_is_the_risk(mixed: Posterior) -> None:
    eta = rules.stable_limit(mixed, 16, 0.05)
    assert rules.collapse_by(mixed, 16, eta, 10**7, warmup=0).high == pytest.approx(0.05, rel=0.05)


def test_crossover_solves_for_the_interval(make_posterior: MakePosterior) -> None:
    rate = 0.05 / 1000  # B/T
    power = rules.crossover(make_posterior(), 1000, 0)
    ceiling = rules.crossover(make_posterior(CEILING), 1000, 0)
    assert power is not None
    assert ceiling is not None
    assert power.estimate == pytest.approx(0.02 / rate)
    assert ceiling.estimate == pytest.approx(1 + 0.02 * (1 / rate - 1 / 5e-3))


def test_a_constant_boundary_crosses_nowhere_or_at_once(make_posterior: MakePosterior) -> None:
    assert rules.crossover(make_posterior(CONSTANT), 10_000, 0) is None
    always = rules.crossover(make_posterior(CONSTANT), 5, 0)
    assert always is not None
    assert always.estimate == 1


@settings(deadline=None, max_examples=40)
@given(rate=st.floats(1e-9, 1e3))
def test_round_down_keeps_two_digits_and_never_exceeds(rate: float) -> None:
    rounded = rules.round_down(rate)
    assert rate / 1.1 < rounded <= rate
    assert rounded == float(f"{rounded:.1e}")
    assert rules.round_down(rounded) == rounded
