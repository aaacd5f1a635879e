from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import save_file
from scipy.stats import norm

from calibrator.advice import ratios, resample, suggest
from calibrator.advice.ratios import Groups, RatioRecord
from calibrator.advice.types import SuggestionRow
from calibrator.errors import CorruptStudyError, NothingToSayError

SPREAD = 0.6


def recorded(updates: int = 60, prompts: int = 8, size: int = 16, spread: float = SPREAD) -> RatioRecord:
    """Log-normal ratios of mean one and rewards with a pass rate of each prompt's own."""
    rng = np.random.default_rng(0)
    N = updates * prompts * size
    passes = rng.beta(1, 1, size=updates * prompts).repeat(size)
    return RatioRecord(
        update=np.repeat(np.arange(updates), prompts * size),
        group=np.tile(np.repeat(np.arange(prompts), size), updates),
        reward=(rng.uniform(size=N) < passes).astype(np.float64),
        lag=np.repeat(np.arange(updates) % 16, prompts * size),
        log_ratio=rng.normal(-0.5 * spread**2, spread, size=N),
    )


log_ratio_groups = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 6), st.integers(2, 8)),
    elements=st.floats(-50, 50) | st.just(-np.inf),
)


def lost(log_ratio: np.ndarray, epsilon: float, estimator: str) -> np.ndarray:
    ratio = np.exp(log_ratio)
    return np.asarray((ratio - ratios.weights(ratio, epsilon, estimator)).mean(axis=1))


@settings(deadline=None)
@given(log_ratio=log_ratio_groups, epsilon=st.floats(0.01, 10))
def test_gmc_loses_least_mass_and_tic_zero_most(log_ratio: np.ndarray, epsilon: float) -> None:
    gmc, tic, tic_zero = (lost(log_ratio, epsilon, name) for name in ("gmc", "tic", "tic_zero"))
    slack = 1e-9 * (1 + np.exp(log_ratio).sum(axis=1))
    assert (gmc <= tic + slack).all()
    assert (tic <= tic_zero + slack).all()


@settings(deadline=None)
@given(log_ratio=log_ratio_groups, epsilon=st.floats(0.01, 10))
def test_gmc_caps_the_group_mass_and_keeps_proportions(log_ratio: np.ndarray, epsilon: float) -> None:
    omega = ratios.weights(np.exp(log_ratio), epsilon, "gmc")
    assert (omega.mean(axis=1) <= (1 + epsilon) * (1 + 1e-9)).all()
    for before, after in zip(log_ratio, omega, strict=True):
        kept = np.isfinite(before)
        assert not kept.any() or np.ptp(before[kept] - np.log(after[kept])) < 1e-9


def test_a_wide_threshold_changes_nothing() -> None:
    ratio = np.exp(np.random.default_rng(1).normal(size=(5, 4)))
    for name in suggest.CAPPED:
        np.testing.assert_array_equal(ratios.weights(ratio, 1e6, name), ratio)


def test_tic_matches_the_closed_form_of_log_normal_ratios() -> None:
    rows = table(recorded(400), "tic", group_sizes=[16])
    for row in rows:
        k, s = math.log(1 + row.epsilon), SPREAD
        upper = norm.sf((k - 0.5 * s**2) / s)  # E[r; r > 1 + eps], r log-normal of mean one
        beyond = norm.sf((k + 0.5 * s**2) / s)
        assert row.cap_activation == pytest.approx(beyond, rel=0.05, abs=1e-3)
        assert row.lost_mass == pytest.approx(upper - (1 + row.epsilon) * beyond, rel=0.08, abs=1e-3)


def test_uncapped_second_moment_and_ess_match_the_closed_form() -> None:
    rows = table(recorded(400), "tic", epsilons=[1e3])
    for row in rows:
        assert row.second_moment == pytest.approx(math.exp(SPREAD**2), rel=0.1)
        assert row.ess == pytest.approx(math.exp(-(SPREAD**2)), rel=0.1)


@pytest.mark.parametrize("estimator", suggest.CAPPED)
def test_a_wider_threshold_loses_less_and_varies_more(estimator: str) -> None:
    rows = table(recorded(), estimator, group_sizes=[8])
    assert [row.lost_mass for row in rows] == sorted((row.lost_mass for row in rows), reverse=True)
    assert [row.second_moment for row in rows] == sorted(row.second_moment for row in rows)


def test_gmc_loses_less_in_larger_groups_and_tic_does_not_care() -> None:
    whole = recorded(200)
    gmc = [row.lost_mass for row in table(whole, "gmc", epsilons=[0.2])]
    tic = [row.lost_mass for row in table(whole, "tic", epsilons=[0.2])]
    assert gmc == sorted(gmc, reverse=True)
    assert gmc[-1] < 0.05 * gmc[0]
    assert max(tic) < 1.1 * min(tic)


def test_smaller_groups_use_every_trajectory_once() -> None:
    groups = ratios.complete_groups(recorded(5))
    for size in (4, 8, 16):
        parts = ratios.regroup(groups, size, np.random.default_rng(0))
        assert parts.size == size
        np.testing.assert_array_equal(np.sort(parts.log_ratio.ravel()), np.sort(groups.log_ratio.ravel()))


def test_larger_groups_keep_their_own_and_borrow_from_their_update() -> None:
    groups = ratios.complete_groups(recorded(5))
    larger = ratios.regroup(groups, 32, np.random.default_rng(0))
    np.testing.assert_array_equal(larger.log_ratio[:, :16], groups.log_ratio[::2])
    for update, row in zip(larger.update, larger.log_ratio, strict=True):
        assert np.isin(row, groups.log_ratio[groups.update == update]).all()
    rows = table(recorded(5), "gmc")
    assert {row.group_size for row in rows if row.extrapolated} == {32, 64, 128}
    assert {row.basis for row in rows if row.extrapolated} == {"extrapolated"}


@settings(deadline=None, max_examples=40)
@given(
    reward=hnp.arrays(np.float64, (3, 6), elements=st.sampled_from([0.0, 0.5, 1.0])), size=st.integers(2, 6)
)
def test_signal_share_is_the_average_over_all_subgroups(reward: np.ndarray, size: int) -> None:
    subgroups = [row[list(chosen)] for row in reward for chosen in combinations(range(6), size)]
    expected = np.mean([np.ptp(subgroup) > 0 for subgroup in subgroups])
    assert ratios.signal_shares(reward, size).mean() == pytest.approx(expected, abs=1e-12)


def test_huge_ratios_stay_finite() -> None:
    wild = recorded(5)
    wild = replace(wild, log_ratio=wild.log_ratio + 2000.0 * (np.arange(wild.update.size) % 7 == 0))
    for estimator in suggest.CAPPED:
        suggested = suggest.suggest(wild, estimator=estimator, group_size=16, epsilon=0.2, batch=128)
        for row in suggested.table:
            numbers = row.model_dump(exclude={"estimator", "basis", "intervals"}).values()
            assert all(math.isfinite(number) for number in numbers)


def test_groups_with_missing_numbers_or_members_are_left_out() -> None:
    whole = recorded(3)
    torn = whole.where(np.arange(whole.update.size) != 5)
    torn.log_ratio[100] = np.nan
    assert ratios.complete_groups(torn).reward.shape == (3 * 8 - 2, 16)


def test_order_of_the_rows_does_not_matter() -> None:
    whole = recorded(3)
    shuffled = whole.where(np.random.default_rng(0).permutation(whole.update.size))
    np.testing.assert_array_equal(
        np.sort(ratios.complete_groups(shuffled).log_ratio), np.sort(ratios.complete_groups(whole).log_ratio)
    )


def test_nothing_recorded_is_refused() -> None:
    empty = recorded(1).where(np.zeros(128, dtype=bool))
    singles = recorded(4, size=1)
    for bad in (empty, singles):
        with pytest.raises(NothingToSayError):
            ratios.complete_groups(bad)


def test_nearly_on_policy_ratios_say_that_it_does_not_matter() -> None:
    suggested = suggest.suggest(recorded(spread=0.01), estimator="gmc", group_size=16, epsilon=0.2, batch=128)
    assert (suggested.group_size, suggested.epsilon) == (16, 0.2)
    assert "do not matter" in suggested.reason


def test_a_tight_cap_is_suggested_wider_within_a_factor_of_four() -> None:
    suggested = suggest.suggest(recorded(), estimator="tic_zero", group_size=16, epsilon=0.2, batch=128)
    assert 0.2 < suggested.epsilon <= 0.8
    assert "not trained" in suggested.reason


def test_uncapped_estimators_get_no_suggestion() -> None:
    for name in ("none", "grpo"):
        suggested = suggest.suggest(recorded(2), estimator=name, group_size=16, epsilon=0.2, batch=128)
        assert suggested.table == []


@pytest.mark.parametrize("estimator", suggest.CAPPED)
def test_same_seed_same_suggestion_and_subsampling_keeps_the_answer(estimator: str) -> None:
    given = {"estimator": estimator, "group_size": 16, "epsilon": 0.2, "batch": 128}
    whole = recorded(1700)
    first, second = (suggest.suggest(whole, **given) for _ in range(2))
    assert first == second
    unthinned = table(whole, estimator, epsilons=[0.2])
    thinned = [row for row in first.table if row.epsilon == 0.2 and row.estimator == estimator]
    for a, b in zip(thinned, unthinned, strict=True):
        assert a.lost_mass == pytest.approx(b.lost_mass, rel=0.2, abs=2e-3)


def test_joined_records_keep_groups_apart() -> None:
    part = recorded(3)
    both = ratios.complete_groups(ratios.joined([part, part]))
    assert both.reward.shape == (48, 16)
    assert both.update.max() == 5


def test_shards_are_read_back_in_order(tmp_path: Path) -> None:
    whole = recorded(4)
    for index in range(2):
        part = whole.where(whole.update // 2 == index)
        columns = {name: np.ascontiguousarray(getattr(part, name)) for name in ratios.FIELDS}
        columns |= {
            "log_ratio": columns["log_ratio"].astype(np.float32),
            "lag": columns["lag"].astype(np.int32),
        }
        save_file(columns, tmp_path / f"ratios-{index:06d}.safetensors")
    read = ratios.read_ratios(tmp_path)
    np.testing.assert_array_equal(read.update, whole.update)
    np.testing.assert_allclose(read.log_ratio, whole.log_ratio, atol=1e-6)
    assert read.lag.dtype == np.int64


@pytest.mark.parametrize("content", [None, b"", b"\x08\x00\x00\x00\x00\x00\x00\x00garbage!"])
def test_missing_or_torn_shards_are_named(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "ratios-000000.safetensors").write_bytes(content)
    with pytest.raises(CorruptStudyError, match="ratios-"):
        ratios.read_ratios(tmp_path)


def test_a_shard_without_a_column_is_named(tmp_path: Path) -> None:
    save_file({"update": np.zeros(2)}, tmp_path / "ratios-000000.safetensors")
    with pytest.raises(CorruptStudyError, match="group"):
        ratios.read_ratios(tmp_path)


def test_effective_share_counts_each_update_by_itself() -> None:
    calm, dead = np.zeros((1, 4)), np.full((1, 4), -np.inf)
    groups = Groups(np.array([0, 1]), np.array([0, 0]), np.zeros((2, 4)), np.vstack([calm, dead]))
    counted = resample.tally(groups, 0.2, "tic", source=groups, signal=np.ones(2))
    assert counted.means()["ess"] == 0.5


def test_thinning_keeps_whole_cycles_with_all_their_lags() -> None:
    """Every 16th update would be of one lag only, and stale ratios are what a suggestion is about."""
    groups = ratios.subsampled(ratios.complete_groups(recorded(3200)))
    assert groups.reward.size <= ratios.MOST
    lags = np.bincount(groups.update % 16)
    assert lags.min() == lags.max() > 0


def test_gmc_and_tic_stand_side_by_side_whichever_was_swept() -> None:
    for name in suggest.CAPPED:
        suggested = suggest.suggest(recorded(8), estimator=name, group_size=16, epsilon=0.2, batch=128)
        assert {row.estimator for row in suggested.table} == {"gmc", "tic", name}
        pairs = {(row.group_size, row.epsilon) for row in suggested.table if row.estimator == "tic"}
        assert {(G, e) for G in (4, 8, 16, 32, 64, 128) for e in (0.05, 4.0)} <= pairs


@pytest.mark.parametrize("estimator", suggest.CAPPED)
def test_the_bound_holds_on_every_row(estimator: str) -> None:
    """(x - 1 - eps)_+ <= (x - 1)^2 / (4 eps), and Chebyshev's inequality, hold on any sample."""
    for row in table(recorded(20), estimator):
        assert row.bound is not None
        assert row.lost_mass <= row.bound * (1 + 1e-6)


def test_signal_per_rollout_counts_groups_that_carry_signal_and_weights_that_count() -> None:
    flat = replace(recorded(), log_ratio=np.zeros(60 * 128))
    small, large = (table(flat, "gmc", group_sizes=[G], epsilons=[0.2])[0] for G in (4, 16))
    for row in (small, large):
        assert row.ess == 1.0
        assert row.signal_per_rollout == pytest.approx(row.signal * (1 - 1 / row.group_size), rel=1e-5)
    assert large.signal_per_rollout > small.signal_per_rollout


def test_intervals_hold_the_truth_nine_times_in_ten() -> None:
    """Cycles that share what they were drawn from: the closed form of log-normal ratios lies inside about 90 %.

    Of 60 records 46 to 60 must hold, a two-sided chance of under 1 % to fail at exactly 90 %.
    """
    inside = 0
    k, s = math.log(1.1), SPREAD
    for seed in range(60):
        own = replace(
            recorded(128), log_ratio=np.random.default_rng(seed).normal(-0.5 * s**2, s, size=128 * 128)
        )
        (row,) = table(own, "tic", group_sizes=[16], epsilons=[0.1])
        low, high = row.intervals["cap_activation"]
        inside += low <= norm.sf((k + 0.5 * s**2) / s) <= high
    assert 46 <= inside <= 60


def test_intervals_widen_where_cycles_differ() -> None:
    """Shared by a cycle, the same spread tells less."""
    alone = recorded(128)
    rng = np.random.default_rng(5)
    shared = rng.normal(scale=0.3, size=9)[(alone.update - alone.lag) // 16]
    together = replace(alone, log_ratio=alone.log_ratio + shared)
    widths = []
    for record in (alone, together):
        low, high = table(record, "gmc", group_sizes=[8], epsilons=[0.1])[0].intervals["cap_activation"]
        widths.append(high / low)
    assert widths[1] > 1.5 * widths[0]


def test_no_interval_where_the_cap_never_acted() -> None:
    (row,) = table(recorded(spread=0.01), "gmc", group_sizes=[16], epsilons=[4.0])
    assert row.cap_activation == 0.0
    assert "cap_activation" not in row.intervals


def test_a_probe_of_larger_groups_replaces_extrapolation() -> None:
    whole = recorded(32)
    probe = recorded(1, prompts=8, size=128)
    given = {"estimator": "gmc", "group_size": 16, "epsilon": 0.2, "batch": 256}
    suggested = suggest.suggest(whole, probe=probe, **given)
    basis = {row.group_size: row.basis for row in suggested.table}
    assert basis == {4: "recorded", 8: "recorded", 16: "recorded", 32: "probe", 64: "probe", 128: "probe"}
    assert not any(row.extrapolated for row in suggested.table)
    held = next(
        row for row in suggested.table if (row.estimator, row.group_size, row.epsilon) == ("gmc", 128, 0.05)
    )
    mass = np.exp(probe.log_ratio.reshape(8, 128)).mean(axis=1)
    assert held.cap_activation == pytest.approx(np.mean(mass > 1.05), abs=1e-6)


def test_a_gain_that_chance_may_explain_is_not_suggested() -> None:
    """One trajectory in a hundred thousand carries the lost mass: another epsilon seems better, but not surely."""
    calm = recorded(64, spread=0.05)
    calm.log_ratio[1000] = 6.0
    suggested = suggest.suggest(calm, estimator="tic_zero", group_size=16, epsilon=0.2, batch=128)
    assert (suggested.group_size, suggested.epsilon) == (16, 0.2)


def table(
    record: RatioRecord,
    estimator: str,
    group_sizes: Sequence[int] = suggest.GROUP_SIZES,
    epsilons: Sequence[float] = suggest.EPSILONS,
) -> list[SuggestionRow]:
    """Rows of one estimator, not thinned."""
    groups = ratios.complete_groups(record)
    source = suggest.Source(groups, "recorded", resample.resampled(np.unique(groups.cycle).size, 0))
    return [each.row for each in suggest.rate_pairs([source], estimator, group_sizes, epsilons)]
