"""Falls from one row to the next that dips, glitches or few good rows used to hide."""

from __future__ import annotations

import numpy as np
import pytest

from calibrator.runlogs.curve import Curve, Floats, Series
from calibrator.verdicts.judge import JudgeSettings, judge
from calibrator.verdicts.types import RunVerdict, Verdict

DEAD = [0.02, 0.01, 0.03, 0.02, 0.02]
TWO_DIPS = [0.3, 0.4, 0.5, 0.5, 0.05, 0.45, 0.5, 0.5, 0.04, 0.4, 0.5, 0.5, 0.5, 0.48]


def judged(rewards: list[float] | np.ndarray, step: int, S: int = 4) -> RunVerdict:
    """Verdict on one row every `step` updates, without stated errors."""
    value: Floats = np.array(rewards, dtype=np.float64)
    at = np.arange(value.size, dtype=np.float64) * step
    series = Series("reward", at, value, np.full(value.size, np.nan), at + step)
    updates = value.size * step
    curve = Curve(
        updates=updates, learning_rate=np.full(updates, 1e-6), rewards=series, probes=None, witnesses={}
    )
    return judge(curve, JudgeSettings(sync_interval=S))


@pytest.mark.parametrize(
    "good",
    [
        TWO_DIPS,
        [0.3, 0.4, 0.5, 0.5, 0.5, 0.05, 0.5, 0.5, 0.5, 0.5],
        [0.3, 0.5, 0.5, 0.05, 0.5, 0.5],
        [0.5, 0.5, 0.5, 0.5, 0.05, 0.5, 0.5, 0.5, 0.05, 0.5, 0.5],
        [0.3, 0.4, 0.5, 0.5, 0.05, 0.06, 0.45, 0.5, 0.04, 0.04, 0.4, 0.5, 0.5],
        # Four dips, of which two and two belong together; three good rows between the last ones and the end.
        [0.382, 0.475, 0.542, 0.563, 0.612, 0.618, 0.617, 0.127, 0.117, 0.051, 0.06, 0.656, 0.625, 0.651],
        [0.46, 0.59, 0.61, 0.64, 0.74, 0.72, 0.7, 0.74, 0.75, 0.04, 0.74, 0.12, 0.09, 0.77, 0.67, 0.7],
    ],
)
def test_dips_of_a_sparse_log_hide_neither_the_collapse_nor_its_onset(good: list[float]) -> None:
    verdict = judged(good + DEAD + DEAD[:1], 40)
    assert verdict.verdict is Verdict.COLLAPSED
    assert verdict.onset_updates == (40 * (len(good) - 1), 40 * len(good))


def test_every_small_number_of_good_rows_dips_and_dead_rows_is_seen() -> None:
    rng = np.random.default_rng(2)
    for good, dips, dead in ((8, 1, 4), (8, 2, 4), (10, 2, 5), (12, 2, 6), (20, 2, 8)):
        level = 0.3 + 0.2 * (1 - np.exp(-np.arange(good) / 2.0))
        level[rng.choice(np.arange(3, good - 2), dips, replace=False)] = 0.05
        rewards = rng.binomial(500, np.append(level, np.full(dead, 0.02))) / 500
        assert judged(rewards, 20, 2).verdict is Verdict.COLLAPSED, (good, dips, dead)


def test_four_good_rows_and_a_cliff_are_no_slow_decline() -> None:
    assert judged([0.3, 0.5, 0.5, 0.5, *DEAD], 40).verdict in (Verdict.COLLAPSED, Verdict.INCONCLUSIVE)


@pytest.mark.parametrize(
    "good",
    [[0.406, 0.391, 0.359, 0.609, 0.391, 0.531], [0.359, 0.344, 0.406, 0.5], [0.484, 0.703, 0.516, 0.469]],
)
def test_death_after_a_few_rows_is_a_collapse(good: list[float]) -> None:
    verdict = judged(good + [0.0] * 100, 4)
    assert verdict.verdict is Verdict.COLLAPSED
    assert verdict.onset_updates == (4 * (len(good) - 1), 4 * len(good))


@pytest.mark.parametrize("seed", range(3))
def test_rows_that_fail_at_random_hide_no_collapse(seed: int) -> None:
    rng = np.random.default_rng(seed)
    level = 0.65 - 0.4 * np.exp(-np.arange(270) / 70)
    rewards = rng.binomial(128, level) / 128 * (rng.random(270) > 0.25)
    verdict = judged([*rewards, 0.5, *[0.0] * 230], 1, 1)
    assert verdict.verdict is Verdict.COLLAPSED
    assert verdict.onset_updates == (270, 271)


@pytest.mark.parametrize("seed", range(10))
def test_rows_of_one_answer_are_no_collapse(seed: int) -> None:
    """Right or wrong: the gap between the two says nothing."""
    rewards = np.random.default_rng(seed).random(100) < 0.5
    assert judged(rewards, 1, 1).verdict is not Verdict.COLLAPSED
    assert judged(rewards[:30], 40).verdict is not Verdict.COLLAPSED


@pytest.mark.parametrize("seed", range(10))
def test_broad_noise_is_no_collapse(seed: int) -> None:
    rewards = 0.2 * np.exp(0.8 * np.random.default_rng(seed).standard_normal(20))
    assert judged(rewards, 40).verdict is not Verdict.COLLAPSED


def test_a_dip_that_ends_with_the_log_is_left_open() -> None:
    verdict = judged([*TWO_DIPS, *DEAD[:3]], 1, 1)
    assert verdict.verdict is Verdict.INCONCLUSIVE
