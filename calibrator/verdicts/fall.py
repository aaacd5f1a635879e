"""The last fall of a track: where it lies, how deep it is, and whether it has lasted long enough to count."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrator.runlogs.curve import Floats
from calibrator.verdicts import settings as rule
from calibrator.verdicts.levels import trailing_mean
from calibrator.verdicts.track import Track

USUAL_RANK = 2 / 3
"""Quantile of the levels before a fall that is the usual one: their median is too low where the run still rises."""


@dataclass(frozen=True)
class Fall:
    """A stretch of fallen versions that lasts to the end of the log."""

    good: int
    """Index of the last good entry of the track."""
    first: int
    """Index of the first fallen entry after it."""
    before: float
    """Lost fraction of the usual level over the updates up to `good`: how far below its best the run is anyway."""
    versions_before: int
    """Distinct versions up to `good`."""
    updates_before: float
    """Updates from the first version to `first`."""
    depth: float
    """Median lost fraction from there on."""
    last_depth: float
    """Mean lost fraction over its last quarter."""
    trough: float
    """Mean lost fraction over the deepest stretch of that length."""
    versions: int
    """Distinct versions in it."""
    span: float
    """Updates between its first and its last version."""
    updates: float
    """From its first version to the last observation."""
    age: float
    """From the last good version to the last observation."""
    width: float
    """Updates between the last good and the first fallen version."""
    gaps: int
    """Entries of the track between these two."""
    dry_rows: float
    """Rollout rows in it that earned nothing."""

    @property
    def deep(self) -> bool:
        return min(self.depth, self.last_depth) >= rule.DEEP

    @property
    def dry(self) -> bool:
        """Nothing was left to learn from for so long that the policy stands still."""
        return min(self.depth, self.last_depth) >= rule.DRY and self.dry_rows >= rule.DRY_ROWS


@dataclass(frozen=True)
class Dip:
    """A fall that was recovered from."""

    low: float
    high: float
    """Versions between which the run was down."""
    depth: float


def last_fall(track: Track, sync_interval: int) -> Fall | None:
    """The fall that the track ends in, None when it does not end in one."""
    good = np.flatnonzero(track.lost <= rule.RECOVERED)
    if not good.size:
        return None
    bad = np.flatnonzero(track.lost >= rule.FALLEN)
    bad = bad[bad > good[-1]]
    if not bad.size:
        return None
    first = int(bad[0])
    tail = track.lost[first:]
    lasting = max(rule.LASTING_UPDATES, rule.LASTING_SYNCS * sync_interval)
    usual = slice(int(np.searchsorted(track.version, track.version[good[-1]] - lasting)), int(good[-1]) + 1)
    # On the scale of the reference at the fall, which a run may have reached only just before.
    kept = (1.0 - track.lost[usual]) * track.best[usual] / track.best[first]
    quarter = max(1, tail.size // 4)
    return Fall(
        good=int(good[-1]),
        first=first,
        before=float(1.0 - np.quantile(kept, USUAL_RANK)),
        versions_before=_distinct(track.version[: good[-1] + 1]),
        updates_before=float(track.version[first] - track.version[0]),
        depth=float(np.median(tail)),
        last_depth=float(np.mean(tail[-quarter:])),
        trough=float(np.max(trailing_mean(tail, quarter)[quarter - 1 :])),
        versions=_distinct(track.version[first:]),
        span=float(track.version[-1] - track.version[first]),
        updates=float(np.max(track.seen[first:]) - track.version[first]),
        age=float(np.max(track.seen[first:]) - track.version[good[-1]]),
        width=float(track.version[first] - track.version[good[-1]]),
        gaps=first - int(good[-1]),
        dry_rows=float(track.rows[first:][~track.probe[first:] & (track.raw[first:] >= rule.DRY)].sum()),
    )


def _distinct(version: Floats) -> int:
    """Different values among sorted ones, of which there is one at least."""
    return 1 + int(np.count_nonzero(np.diff(version)))


def dips(track: Track) -> list[Dip]:
    """Every fall that was recovered from, in order; a bad observation beside a good one of its version is
    none."""
    fallen = track.lost >= rule.FALLEN
    decided = np.flatnonzero(fallen | (track.lost <= rule.RECOVERED))
    change = np.flatnonzero(np.diff(fallen[decided].astype(np.int8), prepend=0))
    ends = decided[change]  # in turn where a fall begins and where it is recovered from
    return [
        Dip(float(track.version[low]), float(track.version[high]), float(np.max(track.lost[low:high])))
        for low, high in zip(ends[::2], ends[1::2], strict=False)
        if track.version[high] > track.version[low]
    ]


def confirmed(fall: Fall, sync_interval: int) -> bool:
    """Whether a fall at the end of a complete log counts."""
    if fall.dry:
        return True
    partial = max(rule.PARTIAL_UPDATES, rule.PARTIAL_SYNCS * sync_interval)
    needed = max(rule.DEEP_UPDATES, rule.DEEP_SYNCS * sync_interval) if fall.deep else partial
    seen = fall.versions >= rule.PERSIST_VERSIONS or fall.span >= rule.PERSIST_SPAN
    return fallen(fall) and seen and fall.updates >= needed


def certain(fall: Fall, sync_interval: int) -> bool:
    """Whether a fall is beyond recovery while the run still goes on; implies `confirmed`."""
    if fall.dry or not confirmed(fall, sync_interval):
        return fall.dry
    if fall.deep:
        needed = max(rule.CERTAIN_DEEP_UPDATES, rule.CERTAIN_DEEP_SYNCS * sync_interval)
        return fall.updates >= needed and fall.age >= rule.CERTAIN_DEEP_AGE * sync_interval
    # One version alone may have been a lucky one.
    if fall.versions_before < rule.USUAL_VERSIONS or fall.updates_before < rule.USUAL_UPDATES:
        return False
    rising = fall.trough - fall.last_depth >= rule.RISING
    needed = max(rule.CERTAIN_PARTIAL_UPDATES, rule.CERTAIN_PARTIAL_SYNCS * sync_interval)
    old = fall.updates >= needed and fall.age >= rule.CERTAIN_PARTIAL_AGE * sync_interval
    return old and not rising


def fallen(fall: Fall) -> bool:
    """Whether most of the stretch, and its end, lie below half of the range.

    Short of DEEP the range is that below the usual level before the fall: the best level of a run that
    wanders is a lucky moment, and most of such a run lies far below it.
    """
    depth = min(fall.depth, fall.last_depth)
    return fall.deep or depth - fall.before >= rule.FALLEN * (1.0 - fall.before)


def is_cliff(fall: Fall, updates: int, sync_interval: int) -> bool:
    """Whether the fall was sudden, or the log too sparse to show that it was slow."""
    longest = max(rule.CLIFF_UPDATES, rule.CLIFF_SYNCS * sync_interval, rule.CLIFF_SHARE * updates)
    return fall.deep or fall.width <= longest or fall.gaps <= 2


def onset(track: Track, fall: Fall) -> tuple[float, float]:
    """(last good, first bad] version around the half-way point of the fall.

    An entry within two standard errors of half-way is neither, so the interval covers it.
    """
    middle = 0.5 * (float(track.lost[fall.good]) + fall.depth)
    reach = min(track.size, fall.first + 3)
    above = track.raw + rule.ONSET_SIGMAS * track.raw_se < middle
    below = track.raw - rule.ONSET_SIGMAS * track.raw_se > middle
    high_version = float(track.version[fall.first])
    good = np.flatnonzero(above[:reach])
    low = int(good[-1]) if good.size else fall.good
    bad = np.flatnonzero(below[low + 1 :])
    high = low + 1 + int(bad[0]) if bad.size else fall.first
    if track.version[high] <= track.version[low]:
        return float(track.version[fall.good]), max(high_version, float(track.version[low]))
    return float(track.version[low]), float(track.version[high])
