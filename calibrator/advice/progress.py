"""Whether reward is a function of the clock L alone, whatever S: measured on the stable runs of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import fdtrc

from calibrator.advice.ratios import Floats
from calibrator.laws.types import Finding

POINTS = 12
"""Values of L at which curves are compared."""
NEAR = 1.25
"""Probes within this factor of an L are averaged: a single probe is noisy."""
LEAST = 0.5
"""Share of the common range of L that a run must have covered to be compared."""
UNLIKELY = 0.05
"""p below which the intervals are said to differ."""


@dataclass(frozen=True)
class RewardCurve:
    """One stable run: reward of the policy [n] at L [n], with its standard errors [n]."""

    sync_interval: int
    cumulative_lr: Floats
    reward: Floats
    se: Floats


def progress_finding(curves: Sequence[RewardCurve]) -> Finding:
    """Compare the spread of reward at equal L between intervals with that between runs of the same interval.

    Every run counts once, by its mean distance from the mean curve of all intervals, over the L that all of them
    reached; a one-way analysis of variance by S. Where no interval has two runs, the probes' standard errors stand for
    the spread between runs.
    """
    offsets = _offsets(curves)
    if len(offsets) < 2:
        return Finding(
            code="progress_not_compared",
            sentence="Whether reward is a function of L whatever S was not measured: stable runs of one interval only "
            "reached a common L.",
        )
    means = {S: float(np.mean(values)) for S, values in offsets.items()}
    between, within, p, what = _variance(curves, offsets)
    listed = ", ".join(f"S = {S} {mean:+.2g}" for S, mean in sorted(means.items()))
    count = sum(len(values) for values in offsets.values())
    start = (
        f"At equal L the mean rewards of the intervals lie {between:.2g} apart (standard deviation; {listed}, over "
        f"{count} stable runs), {what} {within:.2g} apart"
    )
    if p < UNLIKELY:
        return Finding(
            code="progress_depends_on_interval",
            sentence=f"{start}: reward is not a function of L alone (p = {p:.2g}), and an interval with a negative "
            "number learns less than its progress on the clock L says.",
        )
    return Finding(
        code="progress_follows_clock",
        sentence=f"{start}: these runs show no dependence on S beyond L (p = {p:.2g}).",
    )


def _offsets(curves: Sequence[RewardCurve]) -> dict[int, list[float]]:
    """By interval, the mean distance of each of its runs from the mean curve; empty without a common range of L."""
    usable = [curve for curve in curves if np.sum(curve.cumulative_lr > 0) >= 2]
    if len({curve.sync_interval for curve in usable}) < 2:
        return {}
    ends = [(_first(curve), float(curve.cumulative_lr.max()), curve) for curve in usable]
    # The longest run of the interval that got least far decides: all intervals are to be there.
    reach: dict[int, float] = {}
    for _, last, curve in ends:
        reach[curve.sync_interval] = max(reach.get(curve.sync_interval, 0.0), last)
    high = min(reach.values())
    high = min(last for _, last, _ in ends if last >= high * LEAST)
    there = [(first, curve) for first, last, curve in ends if last >= high and first < high]
    if len({curve.sync_interval for _, curve in there}) < 2:
        return {}
    grid = np.geomspace(max(first for first, _ in there), high, POINTS)
    rewards = [(curve.sync_interval, _at(curve, grid)) for _, curve in there]
    intervals = sorted({S for S, _ in rewards})
    centre = np.mean([np.mean([r for s, r in rewards if s == S], axis=0) for S in intervals], axis=0)
    return {S: [float(np.mean(r - centre)) for s, r in rewards if s == S] for S in intervals}


def _first(curve: RewardCurve) -> float:
    return float(curve.cumulative_lr[curve.cumulative_lr > 0].min())


def _at(curve: RewardCurve, grid: Floats) -> Floats:
    """Reward at each L of `grid`: the mean of the probes nearby, or between the two neighbours where none is."""
    between = np.interp(grid, curve.cumulative_lr, curve.reward)
    near = (curve.cumulative_lr > grid[:, None] / NEAR) & (curve.cumulative_lr < grid[:, None] * NEAR)
    count = near.sum(axis=1)
    return np.asarray(np.where(count > 0, near @ curve.reward / np.maximum(count, 1), between))


def _variance(
    curves: Sequence[RewardCurve], offsets: dict[int, list[float]]
) -> tuple[float, float, float, str]:
    """Spread between intervals, spread within them, p of the F test, and what the second spread is."""
    sizes = np.array([len(values) for values in offsets.values()])
    means = np.array([np.mean(values) for values in offsets.values()])
    free, freedom = len(sizes) - 1, int((sizes - 1).sum())
    overall = float(sizes @ means / sizes.sum())
    between_square = float(sizes @ (means - overall) ** 2) / free
    if freedom:
        inside = sum(
            float(np.sum((np.array(v) - m) ** 2)) for v, m in zip(offsets.values(), means, strict=True)
        )
        within_square, what = inside / freedom, "runs of the same interval"
    else:
        noise = [float(np.nanmean(curve.se**2)) / min(POINTS, len(curve.reward)) for curve in curves]
        within_square, what, freedom = (
            float(np.mean(noise)),
            "the noise of the probes alone leaves them",
            10**6,
        )
    ratio = between_square / within_square if within_square > 0 else np.inf
    p = float(fdtrc(free, freedom, ratio)) if np.isfinite(ratio) else 0.0
    return float(np.std(means, ddof=1)), float(np.sqrt(within_square)), p, what
