"""Functions of posterior draws: shapes, limits, quantiles."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

from calibrator.laws.posterior import (
    CEILING,
    CONSTANT,
    POWER,
    Posterior,
    collapse_by_schedule,
    collapse_probability,
    interval,
    log_eta_max,
    prone_probability,
    quantiles,
    rounded,
)


@pytest.fixture
def posterior() -> Posterior:
    nan = np.nan
    return Posterior(
        boundary=np.array([POWER, CEILING, CONSTANT]),
        log_C=np.log([0.02, 0.02, nan]),
        alpha=np.array([1.0, nan, nan]),
        log_eta_0=np.log([nan, 0.01, 0.005]),
        sigma_C=np.array([0.1, 0.2, 0.3]),
        log_B=np.log([0.03, 0.04, 0.05]),
        sigma_B=np.array([0.3, 0.2, 0.1]),
    )


def test_each_draw_uses_its_own_boundary(posterior: Posterior) -> None:
    assert np.exp(log_eta_max(posterior, 5)) == pytest.approx([0.004, 1 / (100 + 200), 0.005])


def test_half_of_the_runs_are_prone_on_the_boundary(posterior: Posterior) -> None:
    eta = float(np.exp(log_eta_max(posterior, 5))[1])
    assert prone_probability(posterior, 5, eta)[1] == pytest.approx(0.5)


def test_shapes(posterior: Posterior) -> None:
    assert log_eta_max(posterior, 4).shape == (3,)
    assert log_eta_max(posterior, [1, 4]).shape == (2, 3)
    assert prone_probability(posterior, 4, [1e-3, 2e-3]).shape == (2, 3)
    assert prone_probability(posterior, [1, 4], 1e-3).shape == (2, 3)
    assert collapse_probability(posterior, [1, 4], [1e-3, 2e-3], 0.1).shape == (2, 3)
    assert collapse_probability(posterior, 4, 1e-3, [0.0, 0.1, 1.0]).shape == (3, 3)


def test_collapse_starts_at_zero_and_ends_at_prone(posterior: Posterior) -> None:
    prone = prone_probability(posterior, 4, 5e-3)
    assert collapse_probability(posterior, 4, 5e-3, 0.0).tolist() == [0, 0, 0]
    assert collapse_probability(posterior, 4, 5e-3, 1e3) == pytest.approx(prone)
    by_B = collapse_probability(posterior, 4, 5e-3, np.exp(posterior.log_B)[0])
    assert by_B[0] == pytest.approx(prone[0] * ndtr(0))


def test_interval_of_a_normal_sample() -> None:
    values = np.random.default_rng(0).normal(size=100_000)
    found = interval(values)
    # standard error of a 5 % quantile of 1e5 normals is 0.007
    assert (found.low, found.estimate, found.high) == pytest.approx((-1.645, 0.0, 1.645), abs=0.02)
    assert found.level == 0.9
    assert interval(values, 0.5).high == pytest.approx(0.674, abs=0.02)


def test_weights_count_like_repetition() -> None:
    values, weights = np.array([3.0, 1.0, 2.0]), np.array([0.2, 0.2, 0.6])
    assert quantiles(values, 0.5, weights) == 2.0
    assert quantiles([7.0], [0.05, 0.95]).tolist() == [7.0, 7.0]


def test_reported_numbers_have_six_digits() -> None:
    assert rounded(1.23456789e-7) == 1.23457e-7


def test_a_schedule_is_prone_by_its_largest_rate_and_collapses_by_its_sum(posterior: Posterior) -> None:
    decaying = np.linspace(4e-3, 0, 20, endpoint=False)
    found = collapse_by_schedule(posterior, 5, decaying)
    assert found == pytest.approx(collapse_probability(posterior, 5, 4e-3, decaying.sum()))
    constant = collapse_by_schedule(posterior, 5, 4e-3, updates=20)
    assert constant == pytest.approx(collapse_by_schedule(posterior, 5, np.full(20, 4e-3)))
    assert np.all(found < constant)
    pieces = collapse_by_schedule(posterior, 5, [1e-3, 4e-3, 9.0], [10, 5, 0])  # the last one never applies
    assert pieces == pytest.approx(collapse_probability(posterior, 5, 4e-3, 0.03))
    assert collapse_by_schedule(posterior, 5, []) == pytest.approx(np.zeros(3))
