"""Courses of simulated policies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from calibrator.simulator.policy import Death, Habits, die, dips, healthy

STILL = Habits(wander=(0.0, 0.0), dips=0.0)


def streams(count: int) -> list[np.random.Generator]:
    return [np.random.default_rng(seed) for seed in range(count)]


def test_a_calm_policy_rises_from_its_start_to_its_top() -> None:
    habits = replace(STILL, start=(0.2, 0.2), top=(0.9, 0.9), learning=(50.0, 50.0))
    level = healthy(habits, streams(5), 1000)
    assert np.all(np.diff(level, axis=1) >= -1e-12)
    np.testing.assert_allclose(level[:, 0], 0.2)
    assert np.all(level[:, -1] > 0.88)


def test_wander_has_the_stated_size_and_memory() -> None:
    habits = replace(STILL, start=(0.5, 0.5), top=(0.5, 0.5), wander=(0.3, 0.3), memory=(10.0, 10.0))
    level = healthy(habits, streams(20), 5000)
    odds = np.log(level / (1 - level))
    # 20 x 5000 / (2 x 10) independent values: 1 % on a standard deviation, three times that allowed.
    assert abs(odds.std() / 0.3 - 1) < 0.03
    assert abs(np.mean(odds[:, 10:] * odds[:, :-10]) / 0.09 - np.exp(-1)) < 0.05


def test_dips_recover_within_their_length() -> None:
    habits = replace(STILL, dips=20.0, dip_updates=(5.0, 40.0), dip_depth=(0.5, 0.9))
    found = [dip for stream in streams(30) for dip in dips(habits, stream, 400)]
    assert len(found) > 100
    for low, shape in found:
        assert 5 <= shape.size <= 40
        assert low >= 1
        assert low + shape.size <= 400
        assert 0.0 <= shape.min() <= shape.max() <= 0.9
        assert shape[-1] < shape.max()


def test_only_those_with_an_onset_die_and_at_it() -> None:
    alive = np.full((2, 101), 0.5)
    level = die(alive, np.array([40.0, np.nan]), Death(slope=(2.0, 2.0), residue=(0.1, 0.1)), streams(2))
    np.testing.assert_array_equal(level[1], alive[1])
    np.testing.assert_array_equal(level[0, :40], 0.5)
    assert level[0, 40] < 0.5
    assert abs(level[0, -1] - 0.05) < 1e-6
