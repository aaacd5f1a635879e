"""The shapes that a naive detector gets wrong, one test each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from calibrator.runlogs.curve import Curve, Series
from calibrator.verdicts.judge import JudgeSettings, judge, judge_so_far
from calibrator.verdicts.types import RunVerdict, Verdict

Maker = Callable[..., Curve]


def rising(updates: int, start: float = 0.4, top: float = 0.9) -> np.ndarray:
    return top - (top - start) * np.exp(-np.arange(updates) / 50)


def dropped(updates: int, at: int, to: float, *, over: float = 4.0) -> np.ndarray:
    level = rising(updates)
    after = np.clip(np.arange(updates) - at, 0, None)
    return to + (level - to) * np.exp(-after / over)


def codes(verdict: RunVerdict) -> set[str]:
    return {evidence.code for evidence in verdict.evidence}


# --- stable, and not quite --------------------------------------------------------------------------


@pytest.mark.parametrize("S", [1, 4, 16, 64])
def test_a_healthy_run_is_stable(run: Maker, S: int) -> None:
    curve, settings = run(1, S, 384), JudgeSettings(sync_interval=S)
    assert judge(curve, settings).verdict is Verdict.STABLE
    assert judge_so_far(curve, settings) is None


def test_a_dip_that_recovers_is_stable_and_told(around: Maker) -> None:
    level = rising(300)
    level[150:180] *= 0.2
    verdict = judge(around(level), JudgeSettings())
    assert verdict.verdict is Verdict.STABLE
    assert "dip" in codes(verdict)


def test_swings_between_syncs_are_dips(around: Maker) -> None:
    level = np.repeat([0.4, 0.8, 0.3, 0.9, 0.2, 0.85, 0.3, 0.9], 64)
    assert judge(around(level, 64), JudgeSettings(sync_interval=64)).verdict is Verdict.STABLE


def test_single_wild_batches_are_no_event(around: Maker) -> None:
    curve = around(rising(300))
    value = curve.rewards.value.copy()
    value[::37] = 0.0
    value[5::41] = 1.0
    curve = replace(curve, rewards=replace(curve.rewards, value=value))
    assert judge(curve, JudgeSettings()).verdict is Verdict.STABLE


def test_a_run_stuck_at_a_plateau_is_stable(around: Maker) -> None:
    assert judge(around(rising(300, 0.4, 0.6)), JudgeSettings()).verdict is Verdict.STABLE


# --- collapses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", [0.0, 0.1, 0.3])
def test_a_fall_that_stays_is_a_collapse(around: Maker, to: float) -> None:
    verdict = judge(around(dropped(400, 200, to)), JudgeSettings())
    assert verdict.verdict is Verdict.COLLAPSED
    assert verdict.onset_updates is not None
    low, high = verdict.onset_updates
    assert 198 <= low < high <= 208
    assert verdict.cumulative_lr_at_onset == pytest.approx((low * 1e-3, high * 1e-3))


def test_collapse_recover_collapse_is_a_collapse_at_the_last_fall(around: Maker) -> None:
    level = rising(500)
    level[150:250] = 0.02
    level[400:] = 0.02
    verdict = judge(around(level), JudgeSettings())
    assert verdict.verdict is Verdict.COLLAPSED
    assert verdict.onset_updates == (399, 400)


def test_death_before_anything_was_learned(around: Maker) -> None:
    level = np.full(200, 0.4)
    level[12:] = 0.0
    verdict = judge(around(level), JudgeSettings())
    assert (verdict.verdict, verdict.onset_updates) == (Verdict.COLLAPSED, (11, 12))


@pytest.mark.parametrize(("S", "versions"), [(4, (200, 204)), (16, (192, 208)), (64, (192, 256))])
def test_rollouts_alone_leave_one_sync(around: Maker, S: int, versions: tuple[int, int]) -> None:
    level = rising(640)
    level[202:] = 0.0
    verdict = judge(around(level, S), JudgeSettings(sync_interval=S))
    assert verdict.onset_updates == versions


def test_probes_narrow_the_onset(run: Maker) -> None:
    curve = run(3, 64, 448, death=202, slope=1.0)
    settings = JudgeSettings(sync_interval=64)
    wide = judge(replace(curve, probes=None), settings).onset_updates
    narrow = judge(curve, settings).onset_updates
    assert wide == (192, 256)
    assert narrow == (200, 208)


def test_death_in_the_first_cycle_is_seen_by_probes(run: Maker) -> None:
    curve = run(2, 256, 512, death=3, slope=1.0)
    verdict = judge(curve, JudgeSettings(sync_interval=256))
    assert (verdict.verdict, verdict.onset_updates) == (Verdict.COLLAPSED, (0, 8))


def test_one_dead_version_without_any_reward_is_enough(around: Maker) -> None:
    level = np.repeat([0.4, 0.8, 0.0], 256)
    verdict = judge(around(level, 256, se=0.0), JudgeSettings(sync_interval=256))
    assert (verdict.verdict, verdict.onset_updates) == (Verdict.COLLAPSED, (256, 512))


def test_perfect_witnesses_after_death_do_not_acquit(around: Maker) -> None:
    dead = np.arange(400) >= 204
    calm = {
        "grad_norm": np.where(dead, 0.0, 1.0),
        "ess": np.where(dead, 1.0, 0.8),
        "kl": np.where(dead, 0.0, 0.1),
    }
    curve = replace(around(dropped(400, 200, 0.0)), witnesses=calm)
    assert judge(curve, JudgeSettings()).verdict is Verdict.COLLAPSED


@pytest.mark.parametrize("name", ["entropy", "response_length", "truncated", "grad_norm", "grad_cosine"])
def test_witnesses_alone_do_not_convict(run: Maker, name: str) -> None:
    wild = np.linspace(0.0, 1.0, 384) ** 4
    curve = replace(run(1, 4, 384), witnesses={name: wild})
    assert judge(curve, JudgeSettings(sync_interval=4)).verdict is Verdict.STABLE


def test_early_warnings_carry_their_lead_time(around: Maker) -> None:
    u = np.arange(400)
    noise = np.random.default_rng(0).standard_normal(400)
    witnesses = {
        "grad_cosine": np.where(u < 170, 0.1, 0.8) + 0.05 * noise,
        "kl": 0.01 * np.exp(np.clip(u - 150, 0, None) / 10) + 0.001 * noise,
        "entropy": 0.5 + 0.02 * noise,
    }
    verdict = judge(replace(around(dropped(400, 200, 0.0, over=1.0)), witnesses=witnesses), JudgeSettings())
    early = {
        evidence.code: evidence.update for evidence in verdict.evidence if evidence.code.startswith("early")
    }
    assert early.keys() == {"early_grad_cosine", "early_kl"}
    assert 170 <= (early["early_grad_cosine"] or 0) <= 175
    assert "before the fall" in " ".join(evidence.sentence for evidence in verdict.evidence)


def test_accuracy_may_fall_behind_a_rising_format_reward(around: Maker) -> None:
    accuracy = around(dropped(400, 200, 0.0), seed=1).rewards
    curve = replace(around(rising(400)), others=(replace(accuracy, name="accuracy"),))
    verdict = judge(curve, JudgeSettings())
    assert verdict.verdict is Verdict.COLLAPSED
    assert "accuracy" in verdict.evidence[0].sentence


# --- degraded ------------------------------------------------------------------------------------------


def test_slow_decline_is_degraded(around: Maker) -> None:
    verdict = judge(around(np.linspace(0.8, 0.35, 400)), JudgeSettings())
    assert verdict.verdict is Verdict.DEGRADED
    assert verdict.onset_updates is None


def test_a_shallow_fall_that_stays_is_degraded(around: Maker) -> None:
    assert judge(around(dropped(400, 200, 0.6)), JudgeSettings()).verdict is Verdict.DEGRADED


@pytest.mark.parametrize("share", [0.9, 0.5, 0.3])
@pytest.mark.parametrize("S", [1, 16])
def test_a_decline_to_little_more_than_half_is_degraded(around: Maker, share: float, S: int) -> None:
    way = np.clip((np.arange(400) / 400 - (1 - share)) / share, 0, 1)
    verdict = judge(around(0.88 - 0.38 * way, S), JudgeSettings(sync_interval=S))
    assert verdict.verdict in (Verdict.DEGRADED, Verdict.COLLAPSED)


def test_a_decline_between_few_long_cycles_is_seen(around: Maker) -> None:
    level = np.repeat([0.8, 0.85, 0.75, 0.65, 0.55, 0.5], 64)
    assert judge(around(level, 64), JudgeSettings(sync_interval=64)).verdict is Verdict.DEGRADED


def test_a_short_decline_at_the_end_is_inconclusive(around: Maker) -> None:
    way = np.clip((np.arange(400) - 365) / 35, 0, 1)
    verdict = judge(around(0.88 - 0.4 * way), JudgeSettings())
    assert (verdict.verdict, codes(verdict)) == (Verdict.INCONCLUSIVE, {"unconfirmed_decline"})


def test_a_dip_is_no_part_of_a_decline(around: Maker) -> None:
    level = rising(400)
    level[330:365] *= 0.3
    assert judge(around(level), JudgeSettings()).verdict is Verdict.STABLE


def test_a_slow_decline_to_the_floor_is_a_collapse(around: Maker) -> None:
    level = np.concatenate((np.linspace(0.8, 0.0, 300), np.zeros(100)))
    assert judge(around(level), JudgeSettings()).verdict is Verdict.COLLAPSED


# --- what a fall is measured against --------------------------------------------------------------------


def test_a_lucky_level_is_not_the_usual_one(around: Maker) -> None:
    level = np.full(400, 0.3)
    level[180:196] = 0.65
    level[196:] = 0.26
    verdict = judge(around(level), JudgeSettings())
    assert verdict.verdict is not Verdict.COLLAPSED
    assert judge_so_far(around(level), JudgeSettings()) is None


def test_a_lucky_first_version_does_not_end_a_run(around: Maker) -> None:
    level = np.full(160, 0.3)
    level[:8] = 0.7
    for updates in range(16, 161, 8):
        assert judge_so_far(around(level, 8).until(updates), JudgeSettings(sync_interval=8)) is None


def test_a_partial_fall_of_a_running_trial_is_certain_as_soon_as_a_deep_one(around: Maker) -> None:
    partial, deep = around(dropped(400, 200, 0.25)), around(dropped(400, 200, 0.0))

    def called(curve: Curve) -> int:
        return next(u for u in range(200, 401) if judge_so_far(curve.until(u), JudgeSettings()))

    assert called(deep) <= 250
    assert called(partial) <= 256


def test_a_recovering_fall_is_not_certain(around: Maker) -> None:
    level = rising(400)
    level[200:] *= np.clip(0.05 + np.arange(200) / 100, 0, 1)  # down for longer than it takes to be certain
    assert all(judge_so_far(around(level).until(u), JudgeSettings()) is None for u in range(200, 401, 4))


def test_many_dips_are_counted(around: Maker) -> None:
    level = np.full(3000, 0.8)
    level[np.arange(3000) % 100 < 20] = 0.1
    verdict = judge(around(level), JudgeSettings())
    assert sum(evidence.code == "dip" for evidence in verdict.evidence) == 20
    assert "9 times more" in " ".join(evidence.sentence for evidence in verdict.evidence)


# --- untrained, inconclusive, interrupted, diverged -----------------------------------------------------


def test_dead_from_the_start_is_untrained(around: Maker) -> None:
    verdict = judge(around(np.zeros(200), se=0.0), JudgeSettings())
    assert (verdict.verdict, codes(verdict)) == (Verdict.UNTRAINED, {"at_floor"})


@pytest.mark.parametrize("name", ["grad_norm", "signal"])
def test_no_gradient_is_untrained(around: Maker, name: str) -> None:
    curve = replace(around(np.full(40, 0.5)), witnesses={name: np.zeros(40)})
    assert codes(judge(curve, JudgeSettings())) == {"no_gradient"}


def test_a_rate_too_small_to_tell_is_untrained(around: Maker) -> None:
    assert judge(around(np.full(300, 0.4)), JudgeSettings()).verdict is Verdict.UNTRAINED


def test_dips_do_not_pass_for_noise() -> None:
    """A few evaluations that rise from 0.4 to 0.75, with three single ones near the floor."""
    level = [
        0.39,
        0.48,
        0.57,
        0.69,
        0.71,
        0.74,
        0.70,
        0.66,
        0.71,
        0.70,
        0.10,
        0.71,
        0.63,
        0.78,
        0.70,
        0.73,
        0.73,
    ]
    level += [0.06, 0.70, 0.72, 0.75, 0.03, 0.76, 0.74, 0.74, 0.67, 0.76, 0.81, 0.71, 0.66, 0.75, 0.80, 0.67]
    at, nothing = 10.0 * np.arange(33), np.empty(0)
    probes = Series("eval/accuracy", at, np.array(level), np.full(33, np.nan), at)
    rewards = Series("reward", nothing, nothing, nothing, nothing)
    curve = Curve(updates=320, learning_rate=np.full(320, 1e-6), rewards=rewards, probes=probes)
    assert judge(curve, JudgeSettings(sync_interval=4)).verdict is Verdict.STABLE


def test_dips_of_a_flat_reward_do_not_show_that_it_trained(around: Maker) -> None:
    level = np.full(300, 0.6)
    level[100:110] = level[200:210] = 0.05
    assert judge(around(level), JudgeSettings()).verdict is Verdict.UNTRAINED


def test_a_flat_reward_of_a_policy_that_moves_is_stable(around: Maker) -> None:
    """Base level, gradients and ratios all alive: the run trained, it just got nowhere."""
    curve = around(np.full(300, 0.6))
    still = replace(curve, witnesses={"log_ratio_abs_mean": np.full(300, 1e-5)})
    moving = replace(curve, witnesses={"log_ratio_abs_mean": np.full(300, 0.2)})
    assert judge(still, JudgeSettings()).verdict is Verdict.UNTRAINED
    assert judge(moving, JudgeSettings()).verdict is Verdict.STABLE


def test_printed_zero_gradients_of_a_run_that_learns_are_ignored(around: Maker) -> None:
    curve = replace(around(rising(300)), witnesses={"grad_norm": np.zeros(300)})
    assert judge(curve, JudgeSettings()).verdict is Verdict.STABLE


def test_a_batch_noise_of_factors_is_no_event(around: Maker) -> None:
    for seed in range(20):
        factor = np.exp(0.5 * np.random.default_rng(seed).standard_normal(300))
        curve = around(np.full(300, 0.2) * factor, se=0.0)
        curve = replace(curve, rewards=replace(curve.rewards, se=np.full(300, np.nan)))
        assert judge(curve, JudgeSettings()).verdict in (Verdict.UNTRAINED, Verdict.INCONCLUSIVE)
        assert judge_so_far(curve, JudgeSettings()) is None


@pytest.mark.parametrize("updates", [0, 1, 2, 6])
def test_too_short(around: Maker, updates: int) -> None:
    assert judge(around(rising(updates)), JudgeSettings()).verdict is Verdict.INCONCLUSIVE


def test_one_version_shows_no_course(around: Maker) -> None:
    curve = around(np.full(256, 0.4), 256)
    assert judge(curve, JudgeSettings(sync_interval=256)).verdict in (Verdict.INCONCLUSIVE, Verdict.UNTRAINED)


def test_a_fall_at_the_very_end_is_left_open(around: Maker) -> None:
    verdict = judge(around(dropped(300, 292, 0.0, over=1.0)), JudgeSettings())
    assert verdict.verdict is Verdict.INCONCLUSIVE
    assert "longer run" in verdict.evidence[0].sentence


@pytest.mark.parametrize(
    ("horizon", "ended", "expected"),
    [
        (300, "finished", Verdict.INTERRUPTED),
        (300, "killed", Verdict.INTERRUPTED),
        (None, "killed", Verdict.INTERRUPTED),
        (300, "stopped", Verdict.STABLE),
        (150, "killed", Verdict.STABLE),
        (None, "finished", Verdict.STABLE),
    ],
)
def test_end_before_the_horizon(around: Maker, horizon: int | None, ended: str, expected: Verdict) -> None:
    settings = JudgeSettings.model_validate({"horizon": horizon, "ended": ended})
    assert judge(around(rising(150)), settings).verdict is expected


def test_killed_after_the_collapse_is_a_collapse(around: Maker) -> None:
    settings = JudgeSettings(horizon=1000, ended="killed")
    assert judge(around(dropped(300, 200, 0.0)), settings).verdict is Verdict.COLLAPSED


def test_non_finite_is_an_event_at_that_update(around: Maker) -> None:
    verdict = judge(replace(around(rising(90)), non_finite_update=82), JudgeSettings())
    assert (verdict.verdict, verdict.onset_updates) == (Verdict.DIVERGED, (82, 83))
    assert verdict.cumulative_lr_at_onset == pytest.approx((0.082, 0.083))


def test_a_collapse_before_the_first_non_finite_value_is_the_event(around: Maker) -> None:
    verdict = judge(replace(around(dropped(400, 200, 0.0)), non_finite_update=350), JudgeSettings())
    assert verdict.verdict is Verdict.COLLAPSED
    assert "non_finite" in codes(verdict)


def test_a_floor_above_the_rewards_is_moved_and_told(around: Maker) -> None:
    verdict = judge(around(dropped(400, 200, 0.0) - 4.0), JudgeSettings())
    assert verdict.verdict is Verdict.COLLAPSED
    assert any("below the stated floor" in warning for warning in verdict.warnings)


@pytest.mark.parametrize("level", [0.0, 0.3])
def test_probes_of_another_task_do_not_disturb(run: Maker, level: float) -> None:
    at = np.arange(8.0, 449.0, 8.0)
    probes = Series("probe", at, np.full(at.size, level), np.full(at.size, 0.02), at)
    healthy, dead = run(1, 4, 448), run(1, 4, 448, death=200)
    assert judge(replace(healthy, probes=probes), JudgeSettings(sync_interval=4)).verdict is Verdict.STABLE
    assert judge(replace(dead, probes=probes), JudgeSettings(sync_interval=4)).verdict is Verdict.COLLAPSED


def test_rewards_may_be_missing_altogether(run: Maker) -> None:
    curve = run(1, 4, 448, death=200)
    nothing = Series("reward", *(np.empty(0) for _ in range(4)))
    verdict = judge(replace(curve, rewards=nothing), JudgeSettings(sync_interval=4))
    assert verdict.verdict is Verdict.COLLAPSED
    assert (
        judge(replace(curve, rewards=nothing, probes=nothing), JudgeSettings()).verdict
        is Verdict.INCONCLUSIVE
    )
