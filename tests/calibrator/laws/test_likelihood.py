"""The likelihood against numerical integration, simulation and its own limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from calibrator.laws.boundaries import CEILING, POWER, log_eta_max
from calibrator.laws.likelihood import Parameters, event_terms, log_likelihood, survivor_terms
from calibrator.laws.observations import Group, Observations

LOG_C, ALPHA, LOG_ETA_0, SIGMA_C, LOG_B, SIGMA_B = -4.0, 0.8, -6.0, 0.4, -3.5, 0.3
GAMMA, BETA, LOG_S_REF, LOG_ETA_REF = 0.2, 0.7, 2.0, -6.5


def _parameters(boundary: int, draws: int = 1) -> Parameters:
    full = np.ones(draws)
    return Parameters(
        boundary,
        *(value * full for value in (LOG_C, ALPHA, LOG_ETA_0, SIGMA_C, LOG_B, SIGMA_B, GAMMA, BETA)),
        LOG_S_REF,
        LOG_ETA_REF,
    )


def _group(rows: list[tuple[float, float, float, float]]) -> Group:
    S, eta, low, high = np.array(rows).reshape(-1, 4).T
    with np.errstate(divide="ignore"):
        return Group(S, np.log(eta), np.log(low), np.log(high), np.ones(S.size))


EVENT = (16.0, 2e-3, 0.02, 0.05)
SURVIVOR = (4.0, 3e-3, 0.03, np.inf)


def _latent(boundary: int, S: float, eta: float) -> tuple[float, float]:
    """P(prone) by integrating over the run's own boundary, and the mean of log L_c, both written afresh."""
    height = float(log_eta_max(boundary, S, log_C=LOG_C, alpha=ALPHA, log_eta_0=LOG_ETA_0))
    density = norm(height, SIGMA_C).pdf
    prone = quad(density, height - 12 * SIGMA_C, np.log(eta))[0]
    return prone, LOG_B + GAMMA * (np.log(S) - LOG_S_REF) + (1 - BETA) * (np.log(eta) - LOG_ETA_REF)


@pytest.mark.parametrize("boundary", [POWER, CEILING])
def test_event_and_survivor_match_integration_over_the_latent_onset(boundary: int) -> None:
    S, eta, low, high = EVENT
    prone, mean = _latent(boundary, S, eta)
    died = prone * quad(norm(mean, SIGMA_B).pdf, np.log(low), np.log(high))[0]
    S, eta, end, _ = SURVIVOR
    prone, mean = _latent(boundary, S, eta)
    lived = 1 - prone * quad(norm(mean, SIGMA_B).pdf, mean - 12 * SIGMA_B, np.log(end))[0]

    found = log_likelihood(Observations(_group([EVENT]), _group([SURVIVOR])), _parameters(boundary))
    # quad's own relative error is about 1e-9 here.
    assert found[0] == pytest.approx(np.log(died) + np.log(lived), abs=1e-7)


def test_probabilities_match_simulated_frequencies() -> None:
    rng = np.random.default_rng(1)
    n, z_prone = 200_000, 0.4
    onset = np.where(rng.normal(size=n) < z_prone, rng.normal(size=n), np.inf)
    for low, high in ((-np.inf, -0.5), (-0.5, 0.8), (0.8, np.inf)):
        p = np.exp(event_terms(np.array([z_prone]), np.array([low]), np.array([high])))[0]
        # four standard errors of a binomial frequency
        frequency = np.mean((onset > low) & (onset <= high) & np.isfinite(onset))
        assert frequency == pytest.approx(p, abs=4 * np.sqrt(p / n))
    q = np.exp(survivor_terms(np.array([z_prone]), np.array([0.8])))[0]
    assert np.mean(onset > 0.8) == pytest.approx(q, abs=4 * np.sqrt(q / n))


@given(z=st.floats(-30, 30), edges=st.lists(st.floats(-30, 30), min_size=2, max_size=4, unique=True))
def test_the_outcomes_of_a_run_exhaust_probability(z: float, edges: list[float]) -> None:
    edges = [-np.inf, *sorted(edges)]
    prone = np.full(len(edges) - 1, z)
    died = np.exp(event_terms(prone, np.array(edges[:-1]), np.array(edges[1:])))
    lived = np.exp(survivor_terms(np.array([z]), np.array(edges[-1:])))
    assert died.sum() + lived[0] == pytest.approx(1.0, abs=1e-9)


@given(z=st.floats(-60, 60), low=st.floats(-60, 59), width=st.floats(1e-6, 60))
def test_terms_are_finite_and_not_positive_far_out(z: float, low: float, width: float) -> None:
    died = event_terms(np.array([z]), np.array([low]), np.array([low + width]))[0]
    lived = survivor_terms(np.array([z]), np.array([low]))[0]
    assert np.isfinite(died)
    assert np.isfinite(lived)
    assert max(died, lived) <= 1e-12


def test_a_narrow_interval_far_in_the_tail_is_density_times_width() -> None:
    width = 1e-5
    found = event_terms(np.array([50.0]), np.array([20.0]), np.array([20.0 + width]))[0]
    # the density changes by a factor exp(20 * width) across the interval
    assert found == pytest.approx(norm.logpdf(20.0) + np.log(width), abs=20 * width)


def test_a_survivor_without_any_update_says_nothing() -> None:
    nothing = Observations(_group([]), _group([(4.0, 3e-3, 0.0, np.inf)]))
    assert log_likelihood(nothing, _parameters(POWER))[0] == 0.0


def test_counts_multiply_and_draws_are_independent() -> None:
    one = Observations(_group([EVENT]), _group([SURVIVOR]))
    three = Observations(_group([EVENT] * 3), _group([SURVIVOR] * 3))
    single = log_likelihood(one, _parameters(POWER, draws=70_000))  # more than one chunk
    assert single.shape == (70_000,)
    assert np.ptp(single) == 0
    assert log_likelihood(three, _parameters(POWER))[0] == pytest.approx(3 * single[0])
