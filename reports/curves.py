"""Curves thinned for drawing: means over bins."""

from __future__ import annotations

import numpy as np

from calibrator.runlogs.curve import Curve
from reports.view import Floats, RunView


def reward_on_clock(row: RunView, points: int, *, start: bool = False) -> tuple[Floats, Floats]:
    """L and reward of a run, as means over at most `points` bins of equal length; L = 0 only with `start`.

    From the probes where there are any: a version's rollouts come from few prompts and scatter far more.
    """
    curve = row.curve
    if curve is None:
        return np.empty(0), np.empty(0)
    clock = np.concatenate([[0.0], np.cumsum(curve.learning_rate)])
    series = curve.probes if curve.probes is not None and curve.probes.value.size > 1 else curve.rewards
    total = np.interp(series.version, np.arange(clock.size), clock)
    value = series.value
    keep = np.isfinite(total) & np.isfinite(value) & ((total > 0) | start)
    total, value = total[keep], value[keep]
    edges = np.unique(np.linspace(0, total.size, min(points, total.size) + 1).astype(int))
    if edges.size < 2:
        return np.empty(0), np.empty(0)
    counts = np.diff(edges)
    return np.add.reduceat(total, edges[:-1]) / counts, np.add.reduceat(value, edges[:-1]) / counts


def warmup_end(curve: Curve) -> int:
    """Updates before the rate first stood at its largest; 0 where the log holds no rates."""
    rates = curve.learning_rate
    if not np.isfinite(rates).any():
        return 0
    return int(np.argmax(rates >= np.nanmax(rates) * (1 - 1e-9)))
