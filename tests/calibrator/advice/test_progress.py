"""Whether reward follows L alone: curves of which that is known."""

from __future__ import annotations

import numpy as np

from calibrator.advice.progress import RewardCurve, progress_finding

NOISE = 0.03


def curve(interval: int, rate: float, seed: int, *, below: float = 0.0, updates: int = 320) -> RewardCurve:
    """Reward that saturates in L, the same for every S, less `below`."""
    rng = np.random.default_rng([interval, seed])
    L = rate * np.arange(0, updates + 1, 8)
    reward = 0.4 + 0.55 * (1 - np.exp(-L / 0.03)) - below * (L > 0) + rng.normal(scale=NOISE, size=L.size)
    return RewardCurve(interval, L, reward, np.full(L.size, NOISE))


def sweep(below: float) -> list[RewardCurve]:
    """Three intervals with two runs each, rates falling with S; the largest S lies `below` the others."""
    rates = {1: 1e-3, 8: 7e-4, 64: 4e-4}
    return [
        curve(S, rate * factor, seed, below=below if S == 64 else 0.0)
        for S, rate in rates.items()
        for seed, factor in enumerate((0.7, 1.0))
    ]


def test_curves_that_follow_l_alone_are_called_so() -> None:
    found = progress_finding(sweep(0.0))
    assert found.code == "progress_follows_clock"
    assert "6 stable runs" in found.sentence
    assert "runs of the same interval" in found.sentence


def test_an_interval_that_learns_less_at_equal_l_is_named() -> None:
    found = progress_finding(sweep(0.15))
    assert found.code == "progress_depends_on_interval"
    assert "S = 64 -0." in found.sentence


def test_without_repeated_runs_the_noise_of_the_probes_is_the_measure() -> None:
    alone = sweep(0.0)[::2]
    assert "noise of the probes" in progress_finding(alone).sentence
    assert progress_finding(sweep(0.2)[::2]).code == "progress_depends_on_interval"


def test_one_interval_or_no_common_l_is_not_compared() -> None:
    assert progress_finding([]).code == "progress_not_compared"
    assert progress_finding([curve(4, 1e-3, seed) for seed in range(3)]).code == "progress_not_compared"
    short, long = curve(4, 1e-6, 0), curve(16, 1e-3, 0)
    assert progress_finding([short, long]).code == "progress_not_compared"
