"""Maximum likelihood: the top of the likelihood, the truth with many runs, and no answer where there is none."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from calibrator.laws.boundaries import CEILING, POWER
from calibrator.laws.likelihood import log_likelihood
from calibrator.laws.maximum import EDGE, maximum_likelihood
from calibrator.laws.observations import observe
from calibrator.laws.priors import parameters, prior, scales
from calibrator.laws.solve import first_starts, solve
from calibrator.laws.types import Run

Simulate = Callable[..., list[Run]]


@pytest.mark.parametrize("boundary", [POWER, CEILING])
def test_no_other_point_is_more_likely(simulate: Simulate, boundary: int) -> None:
    observations = observe(simulate(3, POWER, log_C=math.log(0.013), alpha=1.0))
    at = scales(observations)
    given = prior(boundary, at)
    [mode] = solve(observations, at, first_starts(observations, at, None)).modes[boundary]
    found = maximum_likelihood(observations, at, boundary, mode)
    z = np.random.default_rng(0).uniform(-EDGE / 2, EDGE / 2, size=(4000, given.mean.size))
    # reported to six digits
    assert log_likelihood(observations, parameters(given, z)).max() <= found.log_likelihood + 1e-3


def test_many_runs_give_the_truth(simulate: Simulate) -> None:
    observations = observe(simulate(4, POWER, log_C=math.log(0.013), alpha=1.0, repeats=60))
    found = maximum_likelihood(observations, scales(observations), POWER, np.zeros(5))
    # 1,440 runs: standard errors of about 2 % of C, B and 0.01 of alpha; four of them
    assert found.C is not None
    assert abs(math.log(found.C / 0.013)) < 0.1
    assert found.alpha == pytest.approx(1.0, abs=0.05)
    assert abs(math.log(found.B / 0.03)) < 0.1
    assert found.budget_sigma == pytest.approx(0.3, rel=0.15)
    assert found.open == []


def test_runs_that_no_others_contradict_leave_the_spread_open() -> None:
    """All below one rate live and all above it die: the likelihood rises until the boundary is sharp."""
    runs = [
        Run(
            run=f"S{S}-{eta:g}",
            estimator="gmc",
            sync_interval=S,
            max_lag=S - 1,
            learning_rate=eta,
            updates=4000,
            verdict="collapsed" if S * eta > 0.02 else "stable",
            cumulative_lr=4000 * eta,
            cumulative_lr_onset_low=0.02 * (1 + k / 10) if S * eta > 0.02 else None,
            cumulative_lr_onset_high=0.03 * (1 + k / 10) if S * eta > 0.02 else None,
        )
        for S in (2, 8, 32)
        for k, eta in enumerate((2e-4, 8e-4, 3.2e-3, 1.28e-2))
    ]
    observations = observe(runs)
    found = maximum_likelihood(observations, scales(observations), POWER, np.zeros(5))
    assert "sigma" in found.open
    assert "B" not in found.open
