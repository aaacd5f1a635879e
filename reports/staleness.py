"""The staleness bias that probes recorded, folded over the cycles between two synchronizations."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from calibrator.runlogs.curve import Floats
from reports.recorded import Bias
from reports.view import RunView, StratumKey, StudyView

MOST_LAGS = 16
"""Lags of one folded curve; more are averaged in bins."""
Setting = tuple[int, float]
"""S in updates and eta in LR."""


@dataclass(frozen=True)
class Folded:
    """Bias by lag, from all cycles of all runs at one (S, eta). Arrays have one entry a lag.

    Mean squares are averaged before the root, as docs/probes.md asks; `low` and `high` are one standard error away.
    """

    lag: Floats
    bias: Floats
    low: Floats
    high: Floats
    full: float
    """Norm of the gradient with full ratios, over all rows."""
    rows: int


def probed(view: StudyView, key: StratumKey) -> list[tuple[RunView, Bias]]:
    """Runs of a stratum that recorded the probe, up to their onset: of a dead policy the bias says nothing."""
    told = [(row, row.recorded.bias) for row in view.runs_of(key) if row.recorded and row.recorded.bias]
    alive = [
        (row, bias.until(row.verdict.onset_updates[0] if row.verdict.onset_updates else np.inf))
        for row, bias in told
    ]
    return [(row, bias) for row, bias in alive if bias.update.size]


def folded(view: StudyView, key: StratumKey) -> dict[Setting, Folded]:
    """Folded curves by (S, eta), in that order. Settings without a finite row are left out."""
    groups: dict[Setting, list[Bias]] = defaultdict(list)
    for row, bias in probed(view, key):
        groups[row.run.sync_interval, row.run.learning_rate].append(bias)
    curves = {setting: fold(groups[setting]) for setting in sorted(groups)}
    return {setting: curve for setting, curve in curves.items() if curve is not None}


def fold(biases: list[Bias]) -> Folded | None:
    """None when no row is finite."""
    lag, bias_sq, full_sq = (
        np.concatenate([getattr(each, name) for each in biases])
        for name in ("lag", "bias_sq", "full_grad_sq")
    )
    keep = np.isfinite(lag) & np.isfinite(bias_sq) & np.isfinite(full_sq)
    if not keep.any():
        return None
    lag, bias_sq = lag[keep], bias_sq[keep]
    bins = _bins(lag)
    places = [bins == b for b in np.unique(bins)]
    mean = np.array([bias_sq[at].mean() for at in places])
    error = np.array(
        [bias_sq[at].std(ddof=1) / np.sqrt(at.sum()) if at.sum() > 1 else np.nan for at in places]
    )
    return Folded(
        lag=np.array([lag[at].mean() for at in places]),
        bias=_root(mean),
        low=_root(mean - error),
        high=_root(mean + error),
        full=float(_root(full_sq[keep].mean())),
        rows=int(keep.sum()),
    )


def longest_record(view: StudyView, key: StratumKey) -> tuple[RunView, Bias] | None:
    """The run whose sawtooth is drawn: of those that were stale at all, one that survived, with the most rows."""
    return max(
        ((row, bias) for row, bias in probed(view, key) if row.run.max_lag > 0),
        key=lambda pair: (
            pair[0].verdict.verdict.is_survivor,
            pair[1].update.size,
            pair[0].run.sync_interval,
            -pair[0].trial,
        ),
        default=None,
    )


def _bins(lag: Floats) -> Floats:
    whole = np.round(lag)
    if np.unique(whole).size <= MOST_LAGS:
        return np.asarray(whole)
    width = (whole.max() + 1) / MOST_LAGS
    return np.asarray(
        np.where(whole == 0, -1, whole // width)
    )  # lag 0 is a point of its own: nothing is stale there


def _root(square: Floats) -> Floats:
    return np.asarray(np.sqrt(np.maximum(square, 0.0)))
