"""Shares of groups in a log: how many have differing rewards, and what full marks are where none has any more."""

from __future__ import annotations

import numpy as np

from calibrator.runlogs.curve import Floats, Series

SHARES = ("dead_groups", "solved", "unsolved")
"""Witnesses that are turned into `signal`, the share of groups whose rewards differ."""
ROUNDING = 1e-6
LEAST_SOLVED = 0.01
"""A smaller share of solved groups is taken as this one: then nearly none is, whatever full marks are."""


def with_signal(found: dict[str, Floats]) -> dict[str, Floats]:
    """The witnesses with `signal` where any of them tells it, and without the shares that it was made of."""
    signal = found.get("signal")
    if signal is None and "dead_groups" in found:
        signal = 1.0 - found["dead_groups"]
    if signal is None and "solved" in found and "unsolved" in found:
        signal = 1.0 - found["solved"] - found["unsolved"]
    kept = {name: values for name, values in found.items() if name not in SHARES}
    return kept if signal is None else {**kept, "signal": np.where(signal < ROUNDING, 0.0, signal)}


def full_marks(signal: Floats, solved: Floats, rewards: Series, floor: float) -> float | None:
    """Full marks by the groups of the end that all score alike: those that are solved have them, the rest the floor.

    None where the log does not end without signal. Arrays over updates.
    """
    told = np.flatnonzero(np.isfinite(signal) & np.isfinite(solved))
    alive = np.flatnonzero(signal[told] > 0)
    dry = told[int(alive[-1]) + 1 :] if alive.size else told
    if not dry.size:
        return None
    value = rewards.value[rewards.seen > dry[0]]
    if not value.size:
        return None
    reached = max(float(np.mean(value)) - floor, ROUNDING * float(np.ptp(rewards.value)))
    return floor + reached / max(float(np.mean(solved[dry])), LEAST_SOLVED) if reached > 0.0 else None
