import numpy as np
import pytest

from calibrator.laws.posterior import CEILING, CONSTANT, POWER, Posterior
from reports.view import StudyView, boundary_band, sync_grid


def posterior(draws: int) -> Posterior:
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 0.1, draws)
    return Posterior(
        boundary=np.resize(np.array([POWER, CEILING, CONSTANT]), draws),
        log_C=np.log(0.01) + noise,
        alpha=np.full(draws, 1.0),
        log_eta_0=np.log(5e-3) + noise,
        sigma_C=np.full(draws, 0.2),
        log_B=np.log(0.1) + noise,
        sigma_B=np.full(draws, 0.2),
    )


def test_band_is_ordered_and_covers_the_swept_intervals(view: StudyView) -> None:
    band = boundary_band(view.fit.strata[0], posterior(300))
    assert band.key == view.keys()[0]
    assert np.all(band.low <= band.median)
    assert np.all(band.median <= band.high)
    assert band.sync_interval[0] == 1
    assert band.sync_interval[-1] > 64


@pytest.mark.parametrize("intervals", [[], [1], [4], [1, 256]])
def test_grid_is_increasing_and_at_least_one(intervals: list[int]) -> None:
    grid = sync_grid(intervals)
    assert grid[0] >= 1
    assert np.all(np.diff(grid) > 0)
