"""The course of a whole series: whether it moved at all, and whether it ends below its best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibrator.runlogs.curve import Curve, Floats
from calibrator.verdicts import settings as rule
from calibrator.verdicts.fall import Dip
from calibrator.verdicts.levels import MAD_TO_SIGMA, Levels, trailing_mean, white_noise

Mask = NDArray[np.bool_]

BLOCKS = 8
"""Blocks that a course is cut into: an eighth of a run is a lasting level, and eight show a trend."""
MIN_BLOCKS = 4
TREND_BLOCKS = 64
VERSIONS_PER_BLOCK = 3


@dataclass(frozen=True)
class Decline:
    """How the end of a run compares with its best lasting level, all as (reward - floor) / scale."""

    best: float
    last: float
    noise: float
    """Sampling error of one of them."""
    swing: float
    """Depth of the deepest valley between two lasting levels: how far the run goes down and comes back."""
    updates: float
    """Versions between the last lasting level in the upper quarter of the loss and the end."""

    @property
    def gap(self) -> float:
        return self.best - self.last

    @property
    def lost(self) -> float:
        return self.gap / self.best if self.best > 0.0 else 0.0


def decline_of(levels: Levels, dips: Sequence[Dip] = ()) -> Decline | None:
    """Compare the last lasting level with the best one before it; None when it is no lower, or with too few versions.

    A lasting level is the mean over an eighth of the run, or over half of the shortest decline where that is
    longer. Falls that were recovered from, `dips` in order of version, are left out.
    """
    up = _outside(levels, dips)
    level, version = levels.level[up], levels.version[up]
    if level.size < MIN_BLOCKS:
        return None
    span = float(version[-1] - version[0])
    window = round(max(span / BLOCKS, rule.LASTING_UPDATES / 2) * (level.size - 1) / span)
    window = min(max(1, window), level.size // 2)
    lasting = trailing_mean(level, window)[window - 1 :]
    tail = level[-max(1, window // 3) :]
    # A run that has come back by its very end has not declined.
    last = max(float(lasting[-1]), float(np.mean(tail)) - rule.SIGMAS * levels.noise / tail.size**0.5)
    best = float(np.max(lasting[:-window]))
    if last >= best:
        return None
    high = int(np.flatnonzero(lasting >= best - 0.25 * (best - last))[-1])
    before, after = np.maximum.accumulate(lasting), np.maximum.accumulate(lasting[::-1])[::-1]
    return Decline(
        best=best,
        last=last,
        noise=levels.noise / window**0.5,
        swing=float(np.max(np.minimum(before, after) - lasting)),
        updates=float(version[-1] - version[high + window - 1]),
    )


def has_declined(decline: Decline) -> bool:
    """Whether the loss is worth a word, and more than noise or the run's own swings explain."""
    return (
        decline.lost >= rule.DECLINED
        and decline.gap > rule.SIGMAS * 2.0**0.5 * decline.noise
        and decline.gap > rule.SWINGS * decline.swing
    )


def has_lasted(decline: Decline, sync_interval: int) -> bool:
    """Whether the run has been down for longer than a dip."""
    return decline.updates >= max(rule.LASTING_UPDATES, rule.LASTING_SYNCS * sync_interval)


def at_floor(levels: Levels) -> bool:
    """Whether the reward never rose above its floor by more than noise, nor stood there at the start."""
    if not levels.size or levels.cliff or levels.level[0] > rule.SIGMAS * levels.se[0] > 0.0:
        return False
    window = min(levels.size, max(1, round(rule.REFERENCE_ROWS / levels.rows_per_version)))
    best = float(np.max(np.convolve(levels.level, np.full(window, 1.0 / window), mode="valid")))
    mean = float(np.average(levels.level, weights=levels.rows))
    rows = float(levels.rows.sum())
    few = best <= rule.SIGMAS * levels.noise / window**0.5
    return bool(few and mean <= rule.SIGMAS * levels.row_noise / rows**0.5)


def reward_moved(levels: Levels, *, probe: bool, dips: Sequence[Dip] = ()) -> bool:
    """Whether the levels differ by more than sampling noise: before and after any version, or between lasting ones.

    A probe asks the same prompts every time: what its stated errors do not explain is the policy, not noise. Falls
    that were recovered from, `dips` in order of version, are left out: they neither show that the run trained nor
    may their size pass for noise.
    """
    if not levels.size or levels.cliff:
        return levels.cliff is not None
    levels = _without(levels, dips)
    stated = float(np.sqrt(np.mean(levels.se**2))) * levels.rows_per_version**0.5
    row_noise = max(stated if probe else levels.row_noise, 1e-9)
    return _has_trend(levels) or _moved_once(levels, row_noise) or _lasting_levels_differ(levels, row_noise)


def _outside(levels: Levels, dips: Sequence[Dip]) -> Mask:
    """The versions at which the run was in no dip."""
    begun = np.searchsorted([dip.low for dip in dips], levels.version, side="right")
    ended = np.searchsorted([dip.high for dip in dips], levels.version, side="right")
    return np.asarray(begun == ended)


def _without(levels: Levels, dips: Sequence[Dip]) -> Levels:
    """The levels outside dips, with the noise of these alone; all of them where too few would be left."""
    up = _outside(levels, dips)
    if up.all() or np.count_nonzero(up) < MIN_BLOCKS * VERSIONS_PER_BLOCK:
        return levels
    columns = {name: getattr(levels, name)[up] for name in ("version", "level", "se", "rows", "seen")}
    calm = white_noise(columns["level"])
    share = min(1.0, calm / levels.noise) if calm > 0.0 and levels.noise > 0.0 else 1.0
    return replace(levels, **columns, noise=share * levels.noise, row_noise=share * levels.row_noise)


def _has_trend(levels: Levels) -> bool:
    """Whether levels rise or fall with the version (Kendall's rank correlation): outliers and dips do not hide it."""
    means = _block_means(levels, min(TREND_BLOCKS, levels.size))
    count = means.size
    concordance = float(np.sum(np.triu(np.sign(means - means[:, None]), 1)))
    return bool(abs(concordance) > rule.TREND_SIGMAS * (count * (count - 1) * (2 * count + 5) / 18.0) ** 0.5)


def _moved_once(levels: Levels, row_noise: float) -> bool:
    """Whether the means before and after some version differ: most of a quick learner's run is its plateau."""
    rows, total = np.cumsum(levels.rows), np.cumsum(levels.rows * levels.level)
    before, after = rows[:-1], rows[-1] - rows[:-1]
    change = np.abs(total[:-1] / before - (total[-1] - total[:-1]) / after)
    return bool(np.any(change > rule.SPLIT_SIGMAS * row_noise * np.sqrt(1.0 / before + 1.0 / after)))


def _lasting_levels_differ(levels: Levels, row_noise: float) -> bool:
    """Chi-squared test of the blocks of a run, at the level of SIGMAS."""
    noise = row_noise / levels.rows_per_version**0.5
    count = min(BLOCKS, levels.size // VERSIONS_PER_BLOCK)
    if count < MIN_BLOCKS:
        return bool(np.ptp(levels.level) > rule.SIGMAS * 2.0**0.5 * noise)
    means, degrees = _block_means(levels, count), count - 1
    # Wilson and Hilferty's cube root: no scipy for one quantile.
    spread = 2.0 / (9.0 * degrees)
    limit = degrees * (1.0 - spread + rule.SIGMAS * spread**0.5) ** 3
    return bool(np.sum((means - means.mean()) ** 2) > limit * noise**2 * count / levels.size)


def policy_moved(curve: Curve) -> bool:
    """Whether entropy, length, KL or log-ratio say that the policy changed although its reward did not."""
    told = any(_witness_moved(curve.witnesses.get(name)) for name in ("entropy", "response_length", "kl"))
    return told or _ratios_moved(curve)


def _ratios_moved(curve: Curve) -> bool:
    """Within a sync cycle the log-ratio is how far the learner went from the policy that made the rollouts."""
    ratios = curve.witnesses.get("log_ratio_abs_mean")
    known = ratios[np.isfinite(ratios)] if ratios is not None else np.empty(0)
    return bool(known.size and np.mean(known) > rule.MOVED_LOG_RATIO)


def no_gradient(curve: Curve) -> bool:
    """Whether every gradient in the log is exactly zero, or no group ever had a non-zero advantage."""
    return any(_always_zero(curve.witnesses.get(name)) for name in ("grad_norm", "signal"))


def _always_zero(values: Floats | None) -> bool:
    known = values[np.isfinite(values)] if values is not None else np.empty(0)
    return bool(known.size >= rule.MIN_ROWS and not known.any())


def _witness_moved(values: Floats | None) -> bool:
    if values is None:
        return False
    known = values[np.isfinite(values)]
    size = known.size // 5
    if size < rule.SMOOTH_ROWS:
        return False
    first, last = known[:size], known[-size:]
    spread = MAD_TO_SIGMA * float(np.median(np.abs(first - np.median(first))))
    noise = max(spread, white_noise(known)) / size**0.5
    return bool(abs(float(np.mean(last) - np.mean(first))) > rule.WITNESS_SIGMAS * max(noise, 1e-12))


def _block_means(levels: Levels, count: int) -> Floats:
    """Means of `count` equal blocks of versions, at least one entry each."""
    edges = np.linspace(0, levels.size, count + 1).astype(np.int64)
    return np.asarray(np.add.reduceat(levels.level, edges[:-1]) / np.diff(edges), dtype=np.float64)
