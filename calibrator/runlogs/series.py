"""From placed columns to the series, rates and witnesses of a Curve."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrator.runlogs.curve import Floats, Series
from calibrator.runlogs.place import Placement
from calibrator.runlogs.table import Column

LONGEST_WITNESSED = 6_000_000
"""Updates times sync interval up to which witnesses are kept: their running medians look at so many numbers."""


@dataclass(frozen=True)
class Observed:
    """A column on the axis of updates, one entry a step, the last write of each, sorted by end."""

    rows: np.ndarray
    value: Floats
    begin: Floats
    end: Floats
    version: Floats

    @property
    def size(self) -> int:
        return int(self.value.size)


def observed(column: Column, placed: Placement) -> Observed:
    """The column's numbers, non-finite ones included, where their rows have a place."""
    rows, value = column.at(), column.known()
    kept = np.flatnonzero(~np.isnan(placed.end[rows]))
    # Last write first, so that `unique` keeps it.
    kept = kept[::-1]
    _, last = np.unique(placed.end[rows[kept]], return_index=True)
    kept = kept[last]
    rows = rows[kept]
    return Observed(rows, value[kept], placed.begin[rows], placed.end[rows], placed.version[rows])


def rollouts(name: str, seen: Observed, sync_interval: int) -> Series:
    """Rewards of rollouts: they are of the version at the last refresh before the middle of their row."""
    finite = np.isfinite(seen.value)
    middle = 0.5 * (seen.begin[finite] + seen.end[finite] - 1.0)
    version = np.maximum(np.floor(middle / sync_interval) * sync_interval, 0.0)
    return _series(name, version, seen.value[finite], seen.end[finite])


def evaluations(name: str, seen: Observed) -> Series:
    """Rewards of the learner at the time of its row."""
    finite = np.isfinite(seen.value)
    version = seen.version[finite]
    return _series(name, version, seen.value[finite], version)


def nothing(name: str) -> Series:
    """A series without observations."""
    return Series(name, *(np.empty(0) for _ in range(4)))


def _series(name: str, version: Floats, value: Floats, seen: Floats) -> Series:
    order = np.argsort(version, kind="stable")
    return Series(name, version[order], value[order], np.full(value.size, np.nan), seen[order])


def spread(seen: Observed, updates: int) -> Floats:
    """One value an update: that of the row which covers it, or of the row after it where rows are sparse."""
    out = np.full(updates, np.nan)
    if seen.size:
        covered = int(min(updates, seen.end[-1]))
        owner = np.searchsorted(seen.end, np.arange(covered), side="right")
        out[:covered] = seen.value[np.minimum(owner, seen.size - 1)]
        out[: int(max(0.0, seen.begin[0]))] = np.nan
    return np.where(np.isfinite(out), out, np.nan)
