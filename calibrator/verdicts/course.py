"""The course of a whole series: whether it moved at all, and whether it ends below its best."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from calibrator.runlogs.curve import Curve, Floats
from calibrator.verdicts import settings as rule
from calibrator.verdicts.levels import MAD_TO_SIGMA, Levels, white_noise

BLOCKS = 8
"""Blocks that a course is cut into: an eighth of a run is a lasting level, and eight show a trend."""
MIN_BLOCKS = 4
VERSIONS_PER_BLOCK = 3


@dataclass(frozen=True)
class Decline:
    """The best and the last lasting level of a run, as (reward - floor) / scale."""

    best: float
    last: float
    noise: float
    """Standard error of one of them: sampling and the run's own wandering."""

    @property
    def lost(self) -> float:
        return (self.best - self.last) / self.best if self.best > 0.0 else 0.0


def decline_of(levels: Levels) -> Decline | None:
    """Compare the last block with the best one before it; None when there are too few versions for blocks."""
    blocks = _blocks(levels)
    if blocks is None:
        return None
    means, sampling = blocks
    tail = levels.level[-max(1, levels.size // (3 * BLOCKS)) :]
    # A run that has come back by its very end has not declined.
    last = max(float(means[-1]), float(np.mean(tail)) - rule.SIGMAS * levels.noise / tail.size**0.5)
    wander = white_noise(means)
    return Decline(best=float(np.max(means[:-1])), last=last, noise=float(np.hypot(sampling, wander)))


def has_declined(decline: Decline) -> bool:
    """Whether the loss is both worth a word and more than noise explains."""
    gap = decline.best - decline.last
    return decline.lost >= rule.DECLINED and gap > rule.SIGMAS * 2.0**0.5 * decline.noise


def at_floor(levels: Levels) -> bool:
    """Whether the reward never rose above its floor by more than noise."""
    if not levels.size:
        return False
    window = min(levels.size, max(1, round(rule.REFERENCE_ROWS / levels.rows_per_version)))
    best = float(np.max(np.convolve(levels.level, np.full(window, 1.0 / window), mode="valid")))
    mean = float(np.average(levels.level, weights=levels.rows))
    rows = float(levels.rows.sum())
    few = best <= rule.SIGMAS * levels.noise / window**0.5
    return bool(few and mean <= rule.SIGMAS * levels.row_noise / rows**0.5)


def reward_moved(levels: Levels) -> bool:
    """Whether any lasting level differs from the first by more than sampling noise."""
    blocks = _blocks(levels)
    if blocks is None:
        spread = levels.level.max() - levels.level.min() if levels.size else 0.0
        return bool(spread > rule.SIGMAS * 2.0**0.5 * max(levels.noise, 1e-9))
    means, sampling = blocks
    return bool(np.max(np.abs(means - means[0])) > rule.SIGMAS * 2.0**0.5 * max(sampling, 1e-9))


def policy_moved(curve: Curve) -> bool:
    """Whether entropy, length or log-ratio say that the policy changed although its reward did not."""
    return any(_witness_moved(curve.witnesses.get(name)) for name in ("entropy", "response_length", "kl"))


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


def _blocks(levels: Levels) -> tuple[Floats, float] | None:
    """Means of equal blocks of versions and the sampling error of one."""
    count = min(BLOCKS, levels.size // VERSIONS_PER_BLOCK)
    if count < MIN_BLOCKS:
        return None
    edges = np.linspace(0, levels.size, count + 1).astype(int)
    means = np.array([levels.level[low:high].mean() for low, high in pairwise(edges)])
    return means, levels.noise / (levels.size / count) ** 0.5
