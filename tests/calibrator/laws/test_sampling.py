"""The importance sampler on densities whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm

from calibrator.laws.sampling import Floats, curvature, maximise, sample, sobol

POINTS = 4096


def test_normal_likelihood_gives_the_conjugate_posterior_and_evidence() -> None:
    # prior N(0, 1), likelihood N(x; z, s): posterior N(x/(1+s^2), s^2/(1+s^2)), evidence N(x; 0, sqrt(1+s^2))
    x, s = np.array([1.0, -0.5, 2.0]), np.array([0.3, 1.0, 0.1])

    def log_likelihood(z: Floats) -> Floats:
        return np.asarray(norm.logpdf(x, z, s).sum(axis=1))

    found = sample(log_likelihood, [np.zeros(3)], points=POINTS)
    mean = found.weight @ found.z
    sd = np.sqrt(found.weight @ (found.z - mean) ** 2)
    expected = norm.logpdf(x, 0, np.sqrt(1 + s**2)).sum()
    # 4096 Sobol points with an effective share above a half
    assert found.log_evidence == pytest.approx(expected, abs=0.02)
    assert mean == pytest.approx(x / (1 + s**2), abs=0.02)
    assert sd == pytest.approx(s / np.sqrt(1 + s**2), rel=0.03)


@pytest.mark.parametrize("starts", [[-1.4, 1.4], [1.4]])
def test_two_modes_are_both_found(starts: list[float]) -> None:
    def log_likelihood(z: Floats) -> Floats:
        peaks = [multivariate_normal.logpdf(z, [m, m], 0.01) for m in (-1.5, 1.5)]
        return np.asarray(logsumexp(peaks, axis=0))

    found = sample(log_likelihood, [np.full(2, m) for m in starts], points=POINTS)
    # the second mode is reached through the wide component alone when no start leads there
    assert found.weight @ (found.z[:, 0] > 0) == pytest.approx(0.5, abs=0.05)


def test_a_flat_direction_gets_the_prior() -> None:
    def log_likelihood(z: Floats) -> Floats:
        return np.asarray(norm.logpdf(0.5, z[:, 0], 0.1))

    found = sample(log_likelihood, [np.zeros(2)], points=POINTS)
    assert found.weight @ found.z[:, 1] ** 2 == pytest.approx(1.0, rel=0.05)


def test_a_saddle_still_gives_a_positive_definite_curvature() -> None:
    def saddle(z: Floats) -> Floats:
        return np.asarray(z[:, 0] ** 2 - z[:, 1] ** 2)

    assert np.linalg.eigvalsh(curvature(saddle, np.zeros(2))).min() > 0


def test_maximise_climbs_to_the_top() -> None:
    def density(z: Floats) -> Floats:
        return np.asarray(-np.sum((z - [1.0, -2.0]) ** 2, axis=1))

    assert maximise(density, np.zeros(2)) == pytest.approx([1.0, -2.0], abs=1e-3)


def test_a_rough_likelihood_only_guides() -> None:
    def log_likelihood(z: Floats) -> Floats:
        return np.asarray(norm.logpdf(0.5, z[:, 0], 0.1))

    def rough(z: Floats) -> Floats:
        return np.asarray(norm.logpdf(0.45, z[:, 0], 0.12))

    exact = sample(log_likelihood, [np.zeros(1)], points=POINTS)
    guided = sample(log_likelihood, [np.zeros(1)], points=POINTS, rough=rough)
    assert guided.log_evidence == pytest.approx(exact.log_evidence, abs=0.02)
    assert guided.weight @ guided.z[:, 0] == pytest.approx(exact.weight @ exact.z[:, 0], abs=0.005)


def test_a_guide_that_is_far_off_is_corrected() -> None:
    """Five standard deviations off in each of four directions."""
    sd = np.full(4, 0.01)

    def log_likelihood(z: Floats) -> Floats:
        return np.asarray(norm.logpdf(0.5, z, sd).sum(axis=1))

    def rough(z: Floats) -> Floats:
        return np.asarray(norm.logpdf(0.55, z, sd).sum(axis=1) - 1e3 * (z[:, 0] - 0.55) ** 4)

    found = sample(log_likelihood, [np.zeros(4)], points=512, rough=rough)
    assert found.effective > 50
    # a tenth of a posterior standard deviation, with 512 points
    assert found.weight @ found.z == pytest.approx(np.full(4, 0.5), abs=1e-3)


def test_points_are_the_same_every_time_and_inside_the_cube() -> None:
    u = sobol(256, 7)
    assert np.array_equal(u, sobol(256, 7))
    assert u.min() > 0
    assert u.max() < 1
    # every half of every axis holds half of the points
    assert (u < 0.5).mean(axis=0) == pytest.approx(0.5, abs=1 / 256)
