"""The course of the policy: what share of its own reference it has lost, version by version."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from calibrator.runlogs.curve import Floats
from calibrator.verdicts import settings as rule
from calibrator.verdicts.levels import Levels, rolling_mean, trailing_mean


@dataclass(frozen=True)
class Track:
    """Rollouts and probes of one run in order of version. Arrays have length n, one entry an observed
    version.

    `lost` is the smoothed lost fraction (0: at the reference, 1: at the floor), `raw` the same without
    smoothing and `raw_se` its standard error; `best` is the reference as reward above the floor (0 while
    there is none) and `noise` the standard error of any one version as a share of it; `probe` tells probes
    from rollouts. `clear` is false when the noise is too large for the log to show the loss of half the
    range.
    """

    version: Floats
    seen: Floats
    lost: Floats
    raw: Floats
    raw_se: Floats
    rows: Floats
    best: Floats
    noise: Floats
    probe: np.ndarray
    clear: bool

    @property
    def size(self) -> int:
        return int(self.version.size)


def track_of(levels: Levels, *, probe: bool, initial: float = 0.0) -> Track:
    """The track of one series against its own running reference, the best level that it has kept so far.

    `initial` is a level at version 0 that is known from elsewhere, as a reward above the floor.
    """
    smooth, clear = _smoothing(levels, initial / levels.scale, probe=probe)
    level = rolling_mean(levels.level, smooth)
    best = np.maximum(_reference(levels, smooth, probe=probe), initial / levels.scale)
    # A reference that noise alone would give is none: nothing can be lost from it.
    known = best > rule.SIGMAS * levels.noise / math.sqrt(smooth)
    unit = np.where(known, best, np.inf)
    return Track(
        version=levels.version,
        seen=levels.seen,
        lost=_share(best - level, unit),
        raw=_share(best - levels.level, unit),
        raw_se=levels.se / unit,
        rows=levels.rows,
        best=np.where(known, best * levels.scale, 0.0),
        noise=levels.noise / unit,
        probe=np.full(levels.size, probe),
        clear=clear,
    )


def track_of_run(rewards: Levels, probes: Levels) -> Track:
    """Rollouts and probes as one course: both measure the same policy, each against its own reference.

    The probes start after some updates, by when the policy may be dead: the first rollouts stand in for their
    initial level, unless the two series contradict each other (another task, another parser).
    """
    rollouts = track_of(rewards, probe=False)
    held_out = track_of(probes, probe=True)
    if rollouts.size and held_out.size and rollouts.version[0] <= 0.0:
        joint = track_of(probes, probe=True, initial=float(rollouts.best[0]))
        if not _contradict(rollouts, joint):
            held_out = joint
    return merge(rollouts, held_out)


def _contradict(rollouts: Track, probes: Track) -> bool:
    """Whether probes say fallen at versions whose rollouts are good."""
    good = (rollouts.lost <= rule.RECOVERED) & (rollouts.version >= probes.version[0])
    good &= rollouts.version <= probes.version[-1]
    if int(good.sum()) < rule.PERSIST_VERSIONS:
        return False
    there = np.interp(rollouts.version[good], probes.version, probes.lost)
    return bool(np.median(there) >= rule.FALLEN)


def merge(first: Track, second: Track) -> Track:
    """Both tracks in order of version, probes after rollouts of the same version; an unclear one is left
    out."""
    if not second.size or not second.clear:
        return first
    if not first.size or not first.clear:
        return second
    order = np.argsort(np.concatenate((first.version, second.version)), kind="stable")

    def joined(name: str) -> np.ndarray:
        return np.concatenate((getattr(first, name), getattr(second, name)))[order]

    names = ("version", "seen", "lost", "raw", "raw_se", "rows", "best", "noise", "probe")
    return Track(**{name: joined(name) for name in names}, clear=True)


def _share(part: Floats, unit: Floats) -> Floats:
    # The scale of the levels is a rounded quotient; the last digits must not decide a tie.
    return np.asarray(np.round(np.clip(part / unit, 0.0, 1.0), 9), dtype=np.float64)


def _smoothing(levels: Levels, initial: float, *, probe: bool) -> tuple[int, bool]:
    """Versions behind one level (odd), and whether that many are enough against the noise."""
    if levels.size == 0:
        return 1, True
    # Down to the next odd number: a version with four rows stands for itself.
    for_rows = (
        1 if probe else 2 * round((max(1.0, rule.SMOOTH_ROWS / levels.rows_per_version) - 1.0) / 2.0) + 1
    )
    top = max(float(np.max(rolling_mean(levels.level, for_rows))), initial)
    for_noise = (levels.noise / (rule.SMOOTH_NOISE * top)) ** 2 if top > 0.0 else 1.0
    most = max(for_rows, levels.size // 6)
    return _odd(min(max(for_rows, for_noise), most)), for_noise <= most


def _odd(length: float) -> int:
    return 2 * math.ceil((max(length, 1.0) - 1.0) / 2.0) + 1


def _reference(levels: Levels, smooth: int, *, probe: bool) -> Floats:
    """Running maximum of the sustained level; at the start, of what there is."""
    least = rule.REFERENCE_PROBES if probe else rule.REFERENCE_ROWS / levels.rows_per_version
    window = max(math.ceil(least), smooth)
    kept = trailing_mean(levels.level, window)
    # Three rows make an initial level; before that the first of them speak for all.
    settled = min(levels.size, max(1, math.ceil(3 / levels.rows_per_version))) if not probe else 1
    if levels.size:
        kept[:settled] = kept[settled - 1]
    return np.asarray(np.maximum.accumulate(kept), dtype=np.float64)
