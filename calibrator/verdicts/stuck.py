"""A policy that can no longer learn: all its answers to a prompt score alike, far from full marks.

Without differing rewards in any group there is no advantage and no gradient, so nothing will ever change. The reward
need not have fallen: a rate that is too high can freeze a policy at its first level, or a little above it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from calibrator.runlogs.curve import Curve
from calibrator.verdicts import settings as rule
from calibrator.verdicts.settings import JudgeSettings


@dataclass(frozen=True)
class Stuck:
    """Since when, for how long, and at what reward."""

    low: float
    high: float
    """The signal dried up in versions (low, high]."""
    updates: int
    """Updates without signal at the end."""
    level: float
    """Mean reward of these updates."""

    @property
    def for_good(self) -> bool:
        """Whether momentum has decayed, so that nothing moves any more."""
        return self.updates >= rule.DRY_ROWS


def stuck(curve: Curve, settings: JudgeSettings) -> Stuck | None:
    """The dry end of a run, if it has one below half of full marks; None when the log does not tell.

    A weak policy that is rewarded now and then has dry stretches, too, so the signal must have been steady before.
    """
    signal = curve.witnesses.get("signal")
    if signal is None or settings.full_marks is None:
        return None
    rows = np.flatnonzero(np.isfinite(signal))
    alive = np.flatnonzero(signal[rows] > 0)
    if not alive.size:
        return None
    last = int(alive[-1])
    dry = rows[last + 1 :]
    before = signal[rows[max(0, last + 1 - rule.STEADY_ROWS) : last + 1]]
    if dry.size < rule.STEADY_ROWS or np.mean(before > 0) < rule.STEADY_SHARE:
        return None
    end = curve.rewards.seen > dry[0]
    level = float(np.mean(curve.rewards.value[end])) if end.any() else math.nan
    half = settings.reward_floor + rule.FALLEN * (settings.full_marks - settings.reward_floor)
    if not level < half:
        return None
    low = _version(curve, int(rows[last]))
    return Stuck(low, max(_version(curve, int(dry[0])), low + 1.0), int(dry.size), level)


def _version(curve: Curve, update: int) -> float:
    """Version whose rollouts were consumed at `update`."""
    at = int(np.searchsorted(curve.rewards.seen, update + 1))
    return float(curve.rewards.version[min(at, curve.rewards.version.size - 1)])
