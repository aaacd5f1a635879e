"""Simulated runs: deterministic, with the noise and the truth that they claim."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import betabinom, chisquare, ks_2samp

from calibrator.runlogs.own import read_metrics
from calibrator.simulator import drift
from calibrator.simulator.log import write_log
from calibrator.simulator.policy import Habits
from calibrator.simulator.rewards import draw
from calibrator.simulator.runs import Setting, simulate
from calibrator.simulator.truth import Truth, generator

SHORT = Setting(updates=120, S=4)
WORLDS = [
    Truth("power", B=0.5, C=0.02, alpha=1.0),
    Truth("ceiling", B=0.5, C=0.1, eta_0=4e-3, gamma=0.3),
    Truth("constant", B=0.5, eta_0=2e-3, beta=0.8, sigma_C=0.4),
]


def test_a_run_is_a_function_of_its_own_seed() -> None:
    together, alone = simulate(SHORT, [3, 4, 5]), simulate(SHORT, [4])
    np.testing.assert_array_equal(together.counts[1], alone.counts[0])
    np.testing.assert_array_equal(together.probed[1], alone.probed[0])
    first, second = together.curve(1), alone.curve(0)
    assert first.witnesses.keys() == second.witnesses.keys()
    for name, values in first.witnesses.items():
        np.testing.assert_array_equal(values, second.witnesses[name])
    assert not np.array_equal(together.counts[0], together.counts[1])


@pytest.mark.parametrize("level", [0.0, 0.02, 0.4, 0.9, 1.0])
def test_groups_are_beta_binomial(level: float) -> None:
    uniform = np.random.default_rng(0).random((20_000, 1), dtype=np.float32)
    counts = draw(np.full(20_000, level), uniform, group=8, spread=4.0)
    if level in (0.0, 1.0):
        assert set(np.unique(counts)) == {round(8 * level)}
        return
    expected = betabinom.pmf(np.arange(9), 8, 4 * level, 4 * (1 - level)) * 20_000
    observed = np.bincount(counts.ravel(), minlength=9)
    kept = expected > 5
    pooled = [np.append(part[kept], part[~kept].sum()) for part in (observed, expected)]
    # The grid of levels is off by at most 1e-3 of the level: far below what 20,000 groups could show.
    assert chisquare(pooled[0][pooled[1] > 0], pooled[1][pooled[1] > 0]).pvalue > 1e-3


@pytest.mark.parametrize("truth", WORLDS, ids=lambda truth: truth.boundary)
def test_the_drift_collapses_whom_the_law_collapses_and_when(truth: Truth) -> None:
    setting = Setting(updates=4000, S=16, learning_rate=1.1 * truth.eta_at_risk(16, 0.5), decay=0.3)
    seeds = np.arange(600)
    feedback, budget = drift.run_parameters(truth, setting.effective_interval, setting.learning_rate, seeds)
    clock = np.concatenate(([0.0], np.cumsum(setting.rates())))
    x = drift.displacement(feedback, budget, np.broadcast_to(clock, (seeds.size, clock.size)))
    at = drift.exits(x)
    law = np.array(
        [
            truth.collapse_at(
                generator(0, setting.S, setting.learning_rate, seed),
                setting.effective_interval,
                setting.learning_rate,
            )
            for seed in seeds
        ]
    )
    died, should = np.isfinite(at), law <= clock[-1]
    assert 100 < should.sum() < 500
    # Alignment grows over a short stretch of L first, so a run just above the boundary dies later, or not in time.
    assert np.mean(died != should) < 0.02
    assert ks_2samp(clock[at[died].astype(int)], law[should]).statistic < 0.06


def test_below_the_boundary_the_drift_dies_out() -> None:
    clock = np.linspace(0.0, 100.0, 1000)[None]
    x = drift.displacement(np.array([np.log(0.9)]), np.array([0.05]), clock)
    assert x.max() < drift.CHANCE


def test_the_budget_depends_neither_on_the_rate_nor_on_the_interval() -> None:
    truth = Truth("power", B=0.05, C=0.004, alpha=1.0, sigma_B=0.0)
    found = []
    for S, eta in [(1, 8e-3), (4, 3e-3), (16, 1e-3), (16, 4e-3)]:
        setting = Setting(updates=200, S=S, learning_rate=eta)
        batch = simulate(setting, range(8), truth=truth)
        found += [at * eta for at in batch.onset]
    assert np.allclose(
        found, 0.05, atol=0.006
    )  # one update is up to 8e-3, the alignment's growth below 1 % of B


def test_probes_and_rollouts_see_the_same_policy() -> None:
    still = Habits(start=(0.4, 0.4), top=(0.4, 0.4), wander=(0.0, 0.0), dips=0.0)
    batch = simulate(replace(SHORT, updates=800, habits=still), range(20))
    share = batch.probed.mean() / batch.setting.held_out
    rewards = batch.counts.mean() / batch.setting.group
    # 2000 probes of 128 and 16,000 x 8 groups: standard errors of 1e-3 and 8e-4.
    assert share == pytest.approx(0.4, abs=0.004)
    assert rewards == pytest.approx(0.4, abs=0.004)


def test_stated_errors_are_those_of_the_rewards() -> None:
    still = Habits(start=(0.4, 0.4), top=(0.4, 0.4), wander=(0.0, 0.0), dips=0.0)
    curve = simulate(replace(SHORT, updates=4000, habits=still), [0]).curve(0)
    assert np.sqrt(np.mean(curve.rewards.se**2)) == pytest.approx(curve.rewards.value.std(), rel=0.05)


@pytest.mark.parametrize(("queued", "largest"), [(0, 3), (1, 7)])
def test_lag_and_versions(queued: int, largest: int) -> None:
    curve = simulate(replace(SHORT, queued=queued), [0]).curve(0)
    assert curve.max_lag == largest
    assert np.all(np.diff(curve.rewards.version) >= 0)
    assert np.all(curve.rewards.version % 4 == 0)
    assert np.all(curve.rewards.seen > curve.rewards.version)


def test_rates_warm_up_and_decay() -> None:
    rates = Setting(updates=100, learning_rate=2e-3, warmup=10, decay=1.0).rates()
    assert rates[0] == pytest.approx(2e-4)
    assert rates.max() == pytest.approx(2e-3 * (1 - 9 / 99))
    assert rates[-1] == 0.0


@pytest.mark.parametrize("probe_every", [0, 8])
def test_a_log_gives_the_same_curve_as_the_arrays(tmp_path: Path, probe_every: int) -> None:
    batch = simulate(replace(SHORT, probe_every=probe_every, warmup=10), [7], deaths=np.array([60.0]))
    write_log(batch, 0, tmp_path / "metrics.jsonl")
    read, made = read_metrics(tmp_path / "metrics.jsonl"), batch.curve(0)
    np.testing.assert_array_equal(read.rewards.value, made.rewards.value)
    np.testing.assert_array_equal(read.learning_rate, made.learning_rate)
    assert read.warnings == ()
    assert read.max_lag == made.max_lag
    assert read.witnesses.keys() == made.witnesses.keys()
    assert (read.probes is None) == (made.probes is None)
    if read.probes is not None and made.probes is not None:
        np.testing.assert_array_equal(read.probes.value, made.probes.value)
        np.testing.assert_array_equal(read.probes.version, made.probes.version)


def test_a_log_that_ends_in_a_non_finite_loss(tmp_path: Path) -> None:
    write_log(simulate(SHORT, [0]), 0, tmp_path / "metrics.jsonl", broken_from=50)
    curve = read_metrics(tmp_path / "metrics.jsonl")
    assert (curve.updates, curve.non_finite_update) == (51, 50)
