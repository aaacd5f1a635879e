"""The course of a whole series: whether it moved at all, and whether it ends below its best."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from calibrator.runlogs.curve import Curve, Floats
from calibrator.verdicts import settings as rule
from calibrator.verdicts.levels import MAD_TO_SIGMA, Levels, white_noise

BLOCKS = 8
"""Blocks that a course is cut into: an eighth of a run is a lasting level, and eight show a trend."""
MIN_BLOCKS = 4
VERSIONS_PER_BLOCK = 3


@dataclass(frozen=True)
class Decline:
    """How the end of a run compares with its best lasting level, both as (reward - floor) / scale."""

    best: float
    last: float
    noise: float
    """Sampling error of one of them."""
    comeback: float
    """Largest rise between two lasting levels after the best one was reached: how far the run swings."""
    updates: float
    """Versions between the last level in the upper half of the loss and the end."""

    @property
    def gap(self) -> float:
        return self.best - self.last

    @property
    def lost(self) -> float:
        return self.gap / self.best if self.best > 0.0 else 0.0


def decline_of(levels: Levels) -> Decline | None:
    """Compare the last block with the best one before it; None when it is no lower, or with too few
    versions."""
    edges = _edges(levels)
    if edges is None:
        return None
    means = _means(levels, edges)
    tail = levels.level[-max(1, levels.size // (3 * BLOCKS)) :]
    # A run that has come back by its very end has not declined.
    last = max(float(means[-1]), float(np.mean(tail)) - rule.SIGMAS * levels.noise / tail.size**0.5)
    best = float(np.max(means[:-1]))
    if last >= best:
        return None
    peak = int(np.argmax(means >= best - 0.25 * (best - last)))
    after = means[peak:]
    high = int(np.flatnonzero(means >= 0.5 * (best + last))[-1])
    return Decline(
        best=best,
        last=last,
        noise=_block_noise(levels, edges),
        comeback=float(np.max(after - np.minimum.accumulate(after))),
        updates=float(levels.version[-1] - levels.version[edges[high + 1] - 1]),
    )


def has_declined(decline: Decline, sync_interval: int) -> bool:
    """Whether the loss is worth a word, more than noise or the run's own swings explain, and has lasted."""
    return (
        decline.lost >= rule.DECLINED
        and decline.gap > rule.SIGMAS * 2.0**0.5 * decline.noise
        and decline.gap > rule.SWINGS * decline.comeback
        and decline.updates >= max(rule.PARTIAL_UPDATES, rule.PARTIAL_SYNCS * sync_interval)
    )


def at_floor(levels: Levels) -> bool:
    """Whether the reward never rose above its floor by more than noise, nor stood there at the start."""
    if not levels.size or levels.level[0] > rule.SIGMAS * levels.se[0] > 0.0:
        return False
    window = min(levels.size, max(1, round(rule.REFERENCE_ROWS / levels.rows_per_version)))
    best = float(np.max(np.convolve(levels.level, np.full(window, 1.0 / window), mode="valid")))
    mean = float(np.average(levels.level, weights=levels.rows))
    rows = float(levels.rows.sum())
    few = best <= rule.SIGMAS * levels.noise / window**0.5
    return bool(few and mean <= rule.SIGMAS * levels.row_noise / rows**0.5)


def reward_moved(levels: Levels) -> bool:
    """Whether the lasting levels differ by more than sampling noise (chi-squared, at the level of SIGMAS)."""
    edges = _edges(levels)
    if edges is None:
        spread = levels.level.max() - levels.level.min() if levels.size else 0.0
        return bool(spread > rule.SIGMAS * 2.0**0.5 * max(levels.noise, 1e-9))
    means, noise = _means(levels, edges), max(_block_noise(levels, edges), 1e-9)
    degrees = means.size - 1
    # Wilson and Hilferty's cube root: no scipy for one quantile.
    spread = 2.0 / (9.0 * degrees)
    limit = degrees * (1.0 - spread + rule.SIGMAS * spread**0.5) ** 3
    return bool(np.sum((means - means.mean()) ** 2) > limit * noise**2)


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


def _edges(levels: Levels) -> NDArray[np.int64] | None:
    """Limits of equal blocks of versions, in entries; None when there are too few."""
    count = min(BLOCKS, levels.size // VERSIONS_PER_BLOCK)
    return np.linspace(0, levels.size, count + 1).astype(np.int64) if count >= MIN_BLOCKS else None


def _means(levels: Levels, edges: NDArray[np.int64]) -> Floats:
    return np.array([levels.level[low:high].mean() for low, high in pairwise(edges)])


def _block_noise(levels: Levels, edges: NDArray[np.int64]) -> float:
    """Sampling error of the mean of one block."""
    return float(levels.noise / (levels.size / (edges.size - 1)) ** 0.5)
