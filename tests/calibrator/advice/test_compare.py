"""Which laws of two studies differ."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import norm

from calibrator.advice.compare import contrast, contrasts, differences, tally
from calibrator.laws.fit import FittedStratum
from calibrator.laws.posterior import CEILING, POWER, Posterior

MakePosterior = Callable[..., Posterior]
MakeFitted = Callable[..., FittedStratum]
RNG = np.random.default_rng(3)
FIRST, SECOND = RNG.normal(0.0, 0.3, 4000), RNG.normal(0.5, 0.4, 3000)


def test_the_probability_and_the_ratio_are_those_of_two_normals() -> None:
    """Both logs are normal, so is their difference: sd 0.5. Tolerances: some thousand draws."""
    found = contrast("B", FIRST, SECOND)
    assert found.first_larger == pytest.approx(norm.cdf(-0.5 / 0.5), abs=0.015)
    assert found.ratio.estimate == pytest.approx(np.exp(0.5), rel=0.05)
    assert found.ratio.high == pytest.approx(np.exp(0.5 + 0.5 * norm.ppf(0.95)), rel=0.05)
    assert not found.differs


def test_the_other_way_round_says_the_same() -> None:
    there, back = contrast("B", FIRST, SECOND), contrast("B", SECOND, FIRST)
    assert there.first_larger + back.first_larger == pytest.approx(1, abs=1e-5)
    assert there.ratio.estimate * back.ratio.estimate == pytest.approx(1, rel=0.05)


def test_twice_the_threshold_differs_where_the_intervals_are_narrow(
    make_posterior: MakePosterior, make_fitted: MakeFitted
) -> None:
    one = make_fitted(make_posterior(CEILING, spread=0.1, C=0.02))
    two = make_fitted(make_posterior(CEILING, spread=0.1, C=0.04))
    rows = {(row.quantity, row.sync_interval): row for row in contrasts(one, two)}
    assert set(rows) == {("eta_max", 4), ("eta_max", 16), ("eta_max", 64), ("C", None), ("B", None)}
    assert rows["C", None].ratio.estimate == pytest.approx(2, rel=0.05)
    assert rows["C", None].differs
    assert rows["C", None].first_larger < 0.001
    assert not rows["B", None].differs


def test_thresholds_of_different_boundaries_are_not_compared(
    make_posterior: MakePosterior, make_fitted: MakeFitted
) -> None:
    rows = contrasts(make_fitted(make_posterior(CEILING)), make_fitted(make_posterior(POWER)))
    assert "C" not in {row.quantity for row in rows}


def test_without_a_boundary_nothing_is_compared(
    make_posterior: MakePosterior, make_fitted: MakeFitted
) -> None:
    assert contrasts(make_fitted(make_posterior(CEILING)), make_fitted(None)) == []


def test_differences_name_dotted_keys_and_what_is_absent() -> None:
    first = {"trainer": {"epsilon": 0.2, "optimizer": {"beta2": 0.999}}, "engine": "hf"}
    second = {"trainer": {"epsilon": 0.5, "optimizer": {"beta2": 0.999}, "warmup": 10}, "engine": "hf"}
    found = [(d.key, d.first, d.second) for d in differences(first, second)]
    assert found == [("trainer.epsilon", 0.2, 0.5), ("trainer.warmup", None, 10)]
    assert differences(first, first) == []


def test_verdicts_are_counted_most_frequent_first() -> None:
    assert list(tally(["stable", "collapsed", "stable", "degraded"]).items()) == [
        ("stable", 2),
        ("collapsed", 1),
        ("degraded", 1),
    ]
