"""The odd shapes of real runs, each with the verdicts that a careful reader would give it.

Every shape is a function of a random stream alone, so a seed makes as many different runs of it as are asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from calibrator.runlogs.curve import Curve, Floats, Series
from calibrator.simulator.policy import Habits, Stream
from calibrator.simulator.runs import Reshape, Setting, Simulated, simulate
from calibrator.verdicts.settings import JudgeSettings
from calibrator.verdicts.types import Verdict

CALM = Habits(dips=0.0)
LEARNS = Habits(dips=0.0, start=(0.1, 0.5), top=(0.7, 0.95))
"""Runs whose progress shows through any recording."""


@dataclass(frozen=True)
class Odd:
    """One run and what is true about it."""

    curve: Curve
    settings: JudgeSettings
    allowed: frozenset[Verdict]
    onset: float | None = None
    """Version at which the reward began its last fall."""


Shape = Callable[[Stream], Odd]


def odd(name: str, seed: int) -> Odd:
    """Run `seed` of the shape."""
    return SHAPES[name](np.random.default_rng([seed, *name.encode()]))


# --- building blocks ----------------------------------------------------------------------------------------------


def _setting(stream: Stream, **changes: object) -> Setting:
    """A common run: one of the usual intervals and lengths, with probes or without."""
    S = int(stream.choice([1, 2, 4, 16, 64]))
    drawn = Setting(
        updates=int(stream.integers(max(300, 10 * S), 1200)),
        S=S,
        learning_rate=float(10 ** stream.uniform(-6, -2.5)),
        warmup=int(stream.choice([0, 10, 50])),
        probe_every=int(stream.choice([0, 8])),
        habits=CALM,
    )
    return replace(drawn, **changes)  # type: ignore[arg-type]


def _one(stream: Stream, setting: Setting, reshape: Reshape | None = None) -> Simulated:
    return simulate(setting, [int(stream.integers(2**62))], reshape=reshape)


def _odd(batch: Simulated, *allowed: Verdict, curve: Curve | None = None, **told: object) -> Odd:
    setting = batch.setting
    settings = JudgeSettings(sync_interval=setting.S, reward_floor=setting.floor, full_marks=setting.marks)
    onset = float(batch.onset[0])
    return Odd(
        curve if curve is not None else batch.curve(0),
        settings.model_copy(update=told),
        frozenset(allowed),
        onset if math.isfinite(onset) else None,
    )


def _fall(level: Floats, at: int, to: float, slope: float) -> Floats:
    """Levels that tend to the share `to` of themselves from version `at` on."""
    after = np.maximum(np.arange(level.size) - at + 1.0, 0.0)
    return np.asarray(level * (to + (1.0 - to) * np.exp(-after / slope)), dtype=np.float64)


def _scaled(curve: Curve, factor: float, shift: float) -> Curve:
    def part(series: Series) -> Series:
        return replace(series, value=shift + factor * series.value, se=factor * series.se)

    return replace(
        curve, rewards=part(curve.rewards), probes=part(curve.probes) if curve.probes is not None else None
    )


def _within(stream: Stream, updates: int, low: float, high: float) -> int:
    """A version between two shares of the run."""
    return int(stream.uniform(low, high) * updates)


def _falls(low: float = 0.0, high: float = 0.02, slopes: tuple[float, float] = (0.5, 8.0)) -> Reshape:
    """A fall for good in the middle of the run, to a share between `low` and `high`."""

    def reshape(stream: Stream, level: Floats) -> tuple[Floats, float]:
        at = _within(stream, level.size, 0.2, 0.6)
        slope = float(np.exp(stream.uniform(*np.log(slopes))))
        return _fall(level, at, float(stream.uniform(low, high)), slope), float(at)

    return reshape


# --- alive --------------------------------------------------------------------------------------------------------


def _healthy(stream: Stream) -> Odd:
    return _odd(_one(stream, _setting(stream)), Verdict.STABLE)


def _dips(stream: Stream) -> Odd:
    return _odd(_one(stream, _setting(stream, habits=Habits(dips=6.0))), Verdict.STABLE)


def _long_dip(stream: Stream) -> Odd:
    """Down for long enough to be taken for dead, but it came back and stayed."""

    def reshape(stream: Stream, level: Floats) -> tuple[Floats, float]:
        at = _within(stream, level.size, 0.15, 0.3)
        back = at + _within(stream, level.size, 0.15, 0.3)
        return np.where(np.arange(level.size) < back, _fall(level, at, 0.01, 3.0), level), math.nan

    return _odd(_one(stream, _setting(stream), reshape), Verdict.STABLE)


def _plateau(stream: Stream) -> Odd:
    start = float(stream.uniform(0.2, 0.7))
    habits = replace(CALM, start=(start, start), top=(start + 0.1, start + 0.1))
    return _odd(_one(stream, _setting(stream, habits=habits)), Verdict.STABLE)


def _wild_batches(stream: Stream) -> Odd:
    """Single rollout batches of 0 or full marks between healthy ones."""
    batch = _one(stream, _setting(stream, probe_every=0, S=1))
    curve = batch.curve(0)
    value = curve.rewards.value.copy()
    value[stream.integers(20, value.size - 12, 12)] = stream.choice([0.0, 1.0], 12)
    return _odd(
        batch, Verdict.STABLE, curve=replace(curve, rewards=replace(curve.rewards, value=value, se=0 * value))
    )


def _swings(stream: Stream) -> Odd:
    """Every other long cycle overshoots and the next one repairs it."""

    def reshape(stream: Stream, level: Floats) -> tuple[Floats, float]:
        cycle = np.arange(level.size) // 64
        low = stream.uniform(0.25, 0.6)
        return level * np.where((cycle % 2 == 1) & (cycle < level.size // 64 - 1), low, 1.0), math.nan

    return _odd(_one(stream, _setting(stream, S=64, probe_every=0, updates=1024), reshape), Verdict.STABLE)


def _saturated(stream: Stream) -> Odd:
    """Witnesses at their caps or at zero throughout: a log-ratio cap of 20, a clip fraction of [0, 2], a loss of 0."""
    batch = _one(stream, _setting(stream))
    curve = batch.curve(0)
    shape = np.ones(curve.updates)
    stuck = {"log_ratio_max": 20 * shape, "cap_activation": 0 * shape, "ess": shape, "kl": 0 * shape}
    return _odd(batch, Verdict.STABLE, curve=replace(curve, witnesses=curve.witnesses | stuck))


def _low_entropy(stream: Stream) -> Odd:
    batch = _one(stream, _setting(stream))
    curve = batch.curve(0)
    entropy = 0.6 * np.exp(-np.arange(curve.updates) / 60) + 0.02
    return _odd(batch, Verdict.STABLE, curve=replace(curve, witnesses=curve.witnesses | {"entropy": entropy}))


def _reused_rollouts(stream: Stream) -> Odd:
    """Rows that reuse a rollout batch hold no reward."""
    batch = _one(stream, _setting(stream, probe_every=0, S=2))
    curve = batch.curve(0)
    value = np.where(np.arange(curve.updates) % 2 == 0, curve.rewards.value, np.nan)
    return _odd(batch, Verdict.STABLE, curve=replace(curve, rewards=replace(curve.rewards, value=value)))


def _sparse_stable(stream: Stream) -> Odd:
    setting = _setting(stream, updates=1200, probe_every=int(stream.choice([20, 50])), habits=LEARNS)
    batch = _one(stream, setting)
    return _odd(batch, Verdict.STABLE, curve=_probes_only(batch.curve(0)))


def _killed(stream: Stream) -> Odd:
    batch = _one(stream, _setting(stream))
    return _odd(batch, Verdict.INTERRUPTED, horizon=3 * batch.setting.updates)


def _rounded(stream: Stream) -> Odd:
    """Rewards to one decimal, as a console prints them, without errors."""
    batch = _one(stream, _setting(stream, probe_every=0, habits=LEARNS))
    return _odd(batch, Verdict.STABLE, curve=_one_decimal(batch.curve(0)))


# --- dead ---------------------------------------------------------------------------------------------------------


def _collapse(stream: Stream) -> Odd:
    return _odd(_one(stream, _setting(stream), _falls()), Verdict.COLLAPSED)


def _partial_collapse(stream: Stream) -> Odd:
    """It stops at a twentieth to a third of what it had learned, and learns nothing more."""
    habits = replace(CALM, learning=(10.0, 60.0))
    return _odd(_one(stream, _setting(stream, habits=habits), _falls(0.05, 0.35)), Verdict.COLLAPSED)


def _collapse_recover_collapse(stream: Stream) -> Odd:
    def reshape(stream: Stream, level: Floats) -> tuple[Floats, float]:
        first, back, last = (np.array([0.2, 0.35, 0.65]) * level.size).astype(int) + stream.integers(0, 20, 3)
        dead = _fall(level, int(first), 0.01, 3.0)
        alive = np.where(np.arange(level.size) < back, dead, level)
        return _fall(alive, int(last), 0.01, float(stream.uniform(1, 8))), float(last)

    return _odd(_one(stream, _setting(stream), reshape), Verdict.COLLAPSED)


def _rises_into_collapse(stream: Stream) -> Odd:
    """A judged reward with floor -4 climbs to its best for a while, then everything dies."""

    def reshape(stream: Stream, level: Floats) -> tuple[Floats, float]:
        at = _within(stream, level.size, 0.4, 0.7)
        climb = 0.35 * np.clip((np.arange(level.size) - at + 60.0) / 60.0, 0.0, 1.0)
        return _fall(np.minimum(level + climb, 1.0), at, 0.02, 2.0), float(at)

    habits = replace(CALM, start=(0.3, 0.45), top=(0.4, 0.6))
    setting = _setting(stream, habits=habits, floor=-4.0, marks=0.0)
    return _odd(_one(stream, setting, reshape), Verdict.COLLAPSED)


def _format_hides_accuracy(stream: Stream) -> Odd:
    """The reward is mostly for format and rises on; the accuracy beside it dies."""
    setting = _setting(stream, probe_every=0)
    accuracy = _one(stream, setting, _falls())
    shown = _one(stream, replace(setting, habits=replace(CALM, start=(0.4, 0.6), top=(0.85, 0.98))))
    further = replace(accuracy.curve(0).rewards, name="accuracy")
    return _odd(accuracy, Verdict.COLLAPSED, curve=replace(shown.curve(0), others=(further,)))


def _held_out_only(stream: Stream) -> Odd:
    """Rollouts are hacked and rise; the held-out accuracy, its own series, falls for good."""
    setting = _setting(stream, probe_every=8)
    held_out = _one(stream, setting, _falls())
    curve = _one(stream, replace(setting, probe_every=0)).curve(0)
    probes = held_out.curve(0).probes
    assert probes is not None  # noqa: S101 (the setting has probes)
    return _odd(held_out, Verdict.COLLAPSED, curve=replace(curve, others=(replace(probes, name="held_out"),)))


def _sparse_collapse(stream: Stream) -> Odd:
    setting = _setting(stream, updates=1200, probe_every=int(stream.choice([20, 50])))
    batch = _one(stream, setting, _falls())
    return _odd(batch, Verdict.COLLAPSED, curve=_probes_only(batch.curve(0)))


def _killed_after_collapse(stream: Stream) -> Odd:
    batch = _one(stream, _setting(stream), _falls())
    return _odd(batch, Verdict.COLLAPSED, horizon=3 * batch.setting.updates, ended="killed")


def _rounded_collapse(stream: Stream) -> Odd:
    batch = _one(stream, _setting(stream, probe_every=0), _falls())
    return _odd(batch, Verdict.COLLAPSED, curve=_one_decimal(batch.curve(0)))


def _floor_below_zero(stream: Stream) -> Odd:
    setting = _setting(
        stream, floor=float(stream.choice([-1.0, -4.0])), marks=float(stream.choice([0.0, 1.0]))
    )
    return _odd(_one(stream, setting, _falls()), Verdict.COLLAPSED)


def _thousands(stream: Stream) -> Odd:
    return _odd(_one(stream, _setting(stream, marks=3000.0), _falls()), Verdict.COLLAPSED)


def _early_collapse(stream: Stream) -> Odd:
    """Dead before anything was learned."""

    def reshape(stream: Stream, level: Floats) -> tuple[Floats, float]:
        at = int(stream.integers(5, 40))
        return _fall(level, at, 0.005, 2.0), float(at)

    habits = replace(CALM, start=(0.2, 0.6))
    return _odd(_one(stream, _setting(stream, habits=habits, S=1), reshape), Verdict.COLLAPSED)


def _frozen(stream: Stream) -> Odd:
    """All answers to a prompt become alike at a low level that hardly differs from the one before."""
    start = float(stream.uniform(0.1, 0.3))
    habits = replace(CALM, start=(start, start), top=(start, start), wander=(0.02, 0.05))
    batch = _one(stream, _setting(stream, habits=habits, probe_every=0))
    curve = batch.curve(0)
    at = _within(stream, curve.updates, 0.2, 0.6)
    signal = np.where(np.arange(curve.updates) < at, np.maximum(curve.witnesses["signal"], 0.125), 0.0)
    frozen = replace(curve, witnesses=curve.witnesses | {"signal": signal})
    return replace(
        _odd(batch, Verdict.COLLAPSED, curve=frozen), onset=float(at // batch.setting.S * batch.setting.S)
    )


def _non_finite(stream: Stream) -> Odd:
    batch = _one(stream, _setting(stream))
    at = int(stream.integers(30, batch.setting.updates))
    curve = replace(batch.curve(0), non_finite_update=at)
    return replace(_odd(batch, Verdict.DIVERGED, curve=curve), onset=float(at))


def _non_finite_after_collapse(stream: Stream) -> Odd:
    batch = _one(stream, _setting(stream), _falls())
    return _odd(
        batch, Verdict.COLLAPSED, curve=replace(batch.curve(0), non_finite_update=batch.setting.updates - 5)
    )


# --- neither ------------------------------------------------------------------------------------------------------


def _slow_decline(stream: Stream) -> Odd:
    """No cliff: half or more of the best level is lost over most of the run."""

    def reshape(stream: Stream, level: Floats) -> tuple[Floats, float]:
        begin = stream.uniform(0.1, 0.4)
        way = np.clip((np.arange(level.size) / level.size - begin) / (1.0 - begin), 0.0, 1.0)
        return level * (1.0 - stream.uniform(0.4, 0.7) * way), math.nan

    habits = replace(CALM, start=(0.4, 0.7), top=(0.7, 0.95), learning=(10.0, 60.0), wander=(0.05, 0.3))
    return _odd(_one(stream, _setting(stream, habits=habits), reshape), Verdict.DEGRADED, Verdict.COLLAPSED)


def _shallow_fall(stream: Stream) -> Odd:
    """A step down by a third that stays."""
    habits = replace(CALM, start=(0.4, 0.6), top=(0.7, 0.95), learning=(10.0, 60.0), wander=(0.05, 0.2))
    batch = _one(stream, _setting(stream, habits=habits), _falls(0.6, 0.7))
    return replace(_odd(batch, Verdict.DEGRADED), onset=None)


def _never_trained(stream: Stream) -> Odd:
    habits = Habits(start=(0.0, 0.0), top=(0.0, 0.0), wander=(0.0, 0.0), dips=0.0)
    return _odd(_one(stream, _setting(stream, habits=habits)), Verdict.UNTRAINED)


def _no_gradient(stream: Stream) -> Odd:
    """Rewards come and go, but every gradient is exactly zero."""
    habits = Habits(start=(0.3, 0.6), top=(0.3, 0.3), wander=(0.0, 0.0), dips=0.0)
    batch = _one(stream, _setting(stream, habits=habits))
    curve = batch.curve(0)
    return _odd(
        batch,
        Verdict.UNTRAINED,
        curve=replace(curve, witnesses=curve.witnesses | {"grad_norm": np.zeros(curve.updates)}),
    )


def _too_short(stream: Stream) -> Odd:
    return _odd(
        _one(stream, _setting(stream, updates=int(stream.integers(2, 7)), S=1, probe_every=0)),
        Verdict.INCONCLUSIVE,
    )


def _fall_at_the_end(stream: Stream) -> Odd:
    """It fell a few updates before the log ends: a dip or the end, nobody can tell."""

    def reshape(stream: Stream, level: Floats) -> tuple[Floats, float]:
        at = level.size - int(stream.integers(9, 20))
        return _fall(level, at, 0.3, 1.0), float(at)

    habits = replace(CALM, wander=(0.05, 0.2))
    batch = _one(stream, _setting(stream, S=1, probe_every=0, habits=habits), reshape)
    return replace(_odd(batch, Verdict.INCONCLUSIVE), onset=None)


def _probes_only(curve: Curve) -> Curve:
    empty = Series("reward", *(np.empty(0) for _ in range(4)))
    return replace(curve, rewards=empty, witnesses={})


def _one_decimal(curve: Curve) -> Curve:
    value = np.round(curve.rewards.value, 1)
    return replace(
        curve, rewards=replace(curve.rewards, value=value, se=np.full(value.size, np.nan)), witnesses={}
    )


SHAPES: dict[str, Shape] = {
    "healthy": _healthy,
    "dips that recover": _dips,
    "long dip that recovers": _long_dip,
    "plateau": _plateau,
    "wild batches": _wild_batches,
    "swings between syncs": _swings,
    "saturated witnesses": _saturated,
    "low entropy": _low_entropy,
    "rollouts reused": _reused_rollouts,
    "sparse evaluations": _sparse_stable,
    "rounded rewards": _rounded,
    "killed": _killed,
    "collapse": _collapse,
    "partial collapse": _partial_collapse,
    "early collapse": _early_collapse,
    "collapse, recovery, collapse": _collapse_recover_collapse,
    "reward rises into collapse": _rises_into_collapse,
    "format hides accuracy": _format_hides_accuracy,
    "held-out accuracy falls": _held_out_only,
    "sparse evaluations, collapse": _sparse_collapse,
    "rounded rewards, collapse": _rounded_collapse,
    "killed after collapse": _killed_after_collapse,
    "floor below zero": _floor_below_zero,
    "rewards of thousands": _thousands,
    "frozen": _frozen,
    "non-finite": _non_finite,
    "non-finite after collapse": _non_finite_after_collapse,
    "slow decline": _slow_decline,
    "shallow fall": _shallow_fall,
    "never trained": _never_trained,
    "no gradient": _no_gradient,
    "too short": _too_short,
    "fall at the end": _fall_at_the_end,
}
