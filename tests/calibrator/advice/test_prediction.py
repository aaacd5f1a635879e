"""Counts of collapses that the posterior predicts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, betabinom, binom

from calibrator.advice.prediction import VERY_LIKELY, check, predict_count, unsafe_rate
from calibrator.advice.rules import CREDIBLE, collapse_chances, round_down
from calibrator.laws.posterior import CEILING, Posterior

MakePosterior = Callable[..., Posterior]
DRAWS = (np.arange(4000) + 0.5) / 4000


@pytest.mark.parametrize("p", [0.0, 0.02, 0.4, 1.0])
def test_a_known_chance_is_binomial(p: float) -> None:
    found = predict_count(np.full(10, p), 7)
    assert found.probabilities == pytest.approx(binom.pmf(np.arange(8), 7, p), abs=1e-6)
    # the tails hold at most 5 % each
    assert (found.low, found.high) == tuple(binom.ppf([0.05, 0.95], 7, p).clip(0, 7))


def test_an_uncertain_chance_is_beta_binomial() -> None:
    """Quantiles of a beta at even steps stand for its draws; 4000 of them are right to three digits."""
    found = predict_count(beta.ppf(DRAWS, 2, 5), 12)
    assert found.probabilities == pytest.approx(betabinom.pmf(np.arange(13), 12, 2, 5), abs=2e-4)
    assert (found.low, found.high) == tuple(betabinom.ppf([0.05, 0.95], 12, 2, 5))


@settings(deadline=None, max_examples=60)
@given(a=st.floats(0.2, 20), b=st.floats(0.2, 20), runs=st.integers(0, 64))
def test_the_interval_holds_its_level_and_neither_end_could_move_inwards(
    a: float, b: float, runs: int
) -> None:
    found = predict_count(beta.ppf(DRAWS[::10], a, b), runs)
    mass = np.array(found.probabilities)
    assert 0 <= found.low <= found.high <= runs
    assert mass[found.low : found.high + 1].sum() >= found.level - 1e-4  # chances are given to six digits
    assert mass[: found.low].sum() <= 0.05 + 1e-4
    assert mass[found.high + 1 :].sum() <= 0.05 + 1e-4


def test_the_unsafe_rate_is_the_least_that_is_sure_to_collapse(mixed: Posterior) -> None:
    eta = unsafe_rate(mixed, 16, above=1e-4, horizon=400, warmup=10)
    assert eta is not None

    def sure(rate: float) -> float:
        return float(np.quantile(collapse_chances(mixed, 16, rate, 400, 10), 1 - CREDIBLE))

    assert sure(eta) >= VERY_LIKELY
    assert sure(round_down(0.95 * eta)) < VERY_LIKELY
    assert eta == float(f"{eta:.2g}")


def test_no_rate_is_unsafe_within_a_horizon_that_no_collapse_fits_into(make_posterior: MakePosterior) -> None:
    far = make_posterior(CEILING, B=1e6)
    assert unsafe_rate(far, 16, above=1e-4, horizon=50, warmup=0) is None


@pytest.mark.parametrize(
    ("died", "counted", "inside"),
    [
        ([True] * 5, 5, True),
        ([False] * 5, 5, False),
        ([True, True, None], 2, True),
        ([None, None], 0, False),
    ],
)
def test_runs_that_do_not_decide_are_not_counted(died: list[bool | None], counted: int, inside: bool) -> None:
    found = check(
        role="unsafe",
        sync_interval=4,
        learning_rate=1e-2,
        horizon=400,
        chances=np.full(10, 0.97),
        trials=[
            (i, {True: "collapsed", False: "stable", None: "inconclusive"}[d], d) for i, d in enumerate(died)
        ],
    )
    assert (found.predicted.runs, found.collapsed) == (counted, sum(d is True for d in died))
    assert found.inside is inside
    assert len(found.verdicts) == len(died)
