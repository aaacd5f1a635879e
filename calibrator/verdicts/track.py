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
    """Rollouts and probes of one run in order of version. Arrays have length n, one entry a version.

    Versions observed before there was a reference to lose from are not in it.

    `lost` is the smoothed lost fraction (0: at the reference, 1: at the floor), `raw` the same without
    smoothing and `raw_se` its standard error; `best` is the reference as reward above the floor
    and `noise` the standard error of any one version as a share of it; `probe` tells probes
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
    alone = probe or levels.evaluations
    smooth, clear = _smoothing(levels, initial / levels.scale, probe=alone)
    level = rolling_mean(levels.level, smooth)
    best = np.maximum(_reference(levels, smooth, probe=alone), initial / levels.scale)
    # A reference that noise alone would give is none: nothing can be lost from it.
    known = np.flatnonzero(best > rule.SIGMAS * levels.noise / math.sqrt(smooth))
    unit = best[known]
    return Track(
        version=levels.version[known],
        seen=levels.seen[known],
        lost=_share(unit - level[known], unit),
        raw=_share(unit - levels.level[known], unit),
        raw_se=levels.se[known] / unit,
        rows=levels.rows[known],
        best=unit * levels.scale,
        noise=levels.noise / unit,
        probe=np.full(known.size, probe),
        clear=clear,
    )


def tracks_of_run(rewards: Levels, probes: Levels) -> tuple[Track, Track | None]:
    """Rollouts and probes as one track; or, when they cannot speak of the same policy, as two.

    The probes start after some updates, by when the policy may be dead: the first rollouts stand in for their
    initial level, unless the probes then contradict the rollouts (another task, another parser).
    """
    rollouts, alone = track_of(rewards, probe=False), track_of(probes, probe=True)
    if rollouts.size and rollouts.version[0] <= 0.0 and not contradict(rollouts, alone):
        joint = track_of(probes, probe=True, initial=float(rollouts.best[0]))
        return merge(rollouts, alone if contradict(rollouts, joint) else joint), None
    if contradict(rollouts, alone):
        return rollouts, alone
    return merge(rollouts, alone), None


def contradict(rollouts: Track, probes: Track) -> bool:
    """Whether probes say fallen at versions whose rollouts are good, or good where these have fallen."""
    if not rollouts.size or not probes.size or not (rollouts.clear and probes.clear):
        return False
    inside = (rollouts.version >= probes.version[0]) & (rollouts.version <= probes.version[-1])
    there = np.interp(rollouts.version[inside], probes.version, probes.lost)
    good, fallen = rollouts.lost[inside] <= rule.RECOVERED, rollouts.lost[inside] >= rule.FALLEN

    def enough(chosen: np.ndarray) -> bool:
        return int(chosen.sum()) >= rule.PERSIST_VERSIONS

    return bool(
        (enough(good) and np.median(there[good]) >= rule.FALLEN)
        or (enough(fallen) and np.median(there[fallen]) <= rule.RECOVERED)
    )


def merge(first: Track, second: Track) -> Track:
    """Both in order of version, probes after rollouts of the same version; an unclear one is left out."""
    if not second.size or not second.clear:
        return first
    if not first.size or not first.clear:
        return second
    order = np.argsort(np.concatenate((first.version, second.version)), kind="stable")

    def joined(name: str) -> np.ndarray:
        both: np.ndarray = np.concatenate((getattr(first, name), getattr(second, name)))
        return both[order]

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
    rows = 1.0 if probe else max(1.0, rule.SMOOTH_ROWS / levels.rows_per_version)
    for_rows = 2 * round((rows - 1.0) / 2.0) + 1
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
