"""From the observations of one series to the level of the policy at each version, on a scale without unit."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.ndimage import median_filter

from calibrator.runlogs.curve import Floats, Series
from calibrator.verdicts import settings as rule
from calibrator.verdicts.cliff import Cliff, cliff_of

MAD_TO_SIGMA = 1.4826
FLOOR_SLACK = 0.05  # share of the range by which noise may undercut the stated floor
LARGEST_SE = 10.0  # in ranges of the reward
SECOND_DIFFERENCE = 6.0**0.5  # standard deviation of x[i-1] - 2 x[i] + x[i+1] for unit white noise


@dataclass(frozen=True)
class Levels:
    """Reward of each version of one series. Arrays have length k, one entry a version, sorted.

    `level` is (reward - floor) / scale, where scale is the largest reward above the floor: 0 is the floor and
    no reward is above 1. `noise` is the standard error of one version's level, in the same unit. `cliff` is the last
    good and the first fallen version of a fall from one row to the next that lasts to the end, or None.
    """

    name: str
    version: Floats
    level: Floats
    se: Floats
    rows: Floats
    seen: Floats
    noise: float
    row_noise: float
    floor: float
    scale: float
    floor_moved: bool
    cliff: tuple[float, float] | None = None

    @property
    def size(self) -> int:
        return int(self.version.size)

    @property
    def evaluations(self) -> bool:
        """Whether rows are far apart and good ones clearly tell themselves from fallen ones: each stands for itself."""
        return self.cliff is not None and float(np.median(np.diff(self.version))) >= rule.SPARSE_UPDATES

    @property
    def rows_per_version(self) -> float:
        return max(1.0, float(np.median(self.rows))) if self.size else 1.0

    def reward(self, level: float) -> float:
        """Back to the reward's own scale."""
        return self.floor + self.scale * level


def levels_of(series: Series, floor: float) -> Levels:
    """Average the rows of each version and measure the noise; a floor above the rewards is moved down."""
    used = effective_floor(series.value, floor)
    scale = float(np.max(series.value) - used) if series.value.size else 0.0
    scale = scale if scale > 0.0 else 1.0
    # Rounded, so that a tie at a threshold is a tie on every scale of the reward.
    value = np.round(np.maximum(series.value - used, 0.0) / scale, 9)
    # An error of many ranges says no more than one of a few, and its square must not overflow.
    row_se = np.minimum(np.abs(series.se), LARGEST_SE * scale) / scale
    cliff = cliff_of(value, lambda chosen: _noise_of_good(value[chosen], series.version[chosen]))
    row_noise = _row_noise(value, series.version, row_se, cliff)
    start = np.flatnonzero(np.diff(series.version, prepend=np.nan))  # NaN differs from the first one, too
    version, rows = series.version[start], np.diff(start, append=series.version.size)
    level = _by_version(value, start, rows)
    known = np.where(np.isfinite(row_se), row_se, row_noise)
    se = np.sqrt(_by_version(known**2, start, rows) / np.maximum(rows, 1))
    seen = np.maximum.reduceat(series.seen, start) if start.size else np.empty(0)
    noise = row_noise / max(1.0, float(np.median(rows))) ** 0.5 if rows.size else 0.0
    levels = Levels(
        series.name, version, level, se, rows.astype(float), seen, noise, row_noise, used, scale, used < floor
    )
    around = (series.version[cliff.last], series.version[cliff.first]) if cliff else None
    return replace(levels, level=without_spikes(level, noise), cliff=around)


def effective_floor(value: Floats, floor: float) -> float:
    """The stated floor, or the lowest level that the run kept for a while where that is lower."""
    if value.size == 0:
        return floor
    half = rule.SMOOTH_ROWS // 2
    kept = median_filter(value, rule.SMOOTH_ROWS)[half:-half] if value.size > 2 * half else np.median(value)
    lowest = float(np.min(kept))
    spread = float(np.max(value)) - lowest
    # Zero-mean noise around the floor is no reason to move it.
    return lowest if floor - lowest > FLOOR_SLACK * spread and lowest < floor else floor


def white_noise(value: Floats, least: int = 1) -> float:
    """Standard deviation of the noise around a smooth course, robust against trends and long dead ends.

    Differences that are exactly zero are left out: the zeros of a dead run are not a measurement of noise. With
    fewer than `least` others there is none: 0.
    """
    return _robust_sigma(_second_differences(value), least) if value.size >= 3 else 0.0


def without_spikes(value: Floats, noise: float) -> Floats:
    """Cut single wild observations back towards the median of seven neighbours; edges of cliffs stay.

    What a neighbour shares is not single.
    """
    half = 3
    if value.size <= 4 * half:
        return value
    middle = median_filter(value, 2 * half + 1, mode="nearest")
    reach = rule.SPIKE_SIGMAS * max(noise, white_noise(value), 1e-9)
    beside = np.stack((np.append(value[1:], value[-2]), np.insert(value[:-1], 0, value[1])))
    low = np.minimum(middle - reach, np.min(beside, axis=0))
    high = np.maximum(middle + reach, np.max(beside, axis=0))
    return np.asarray(np.clip(value, low, high), dtype=np.float64)


def rolling_mean(value: Floats, window: int) -> Floats:
    """Centred mean over `window` (odd) entries, shorter at both ends."""
    half = window // 2
    total = np.concatenate(([0.0], np.cumsum(value)))
    index = np.arange(value.size)
    low, high = np.maximum(index - half, 0), np.minimum(index + half + 1, value.size)
    return np.asarray((total[high] - total[low]) / (high - low), dtype=np.float64)


def trailing_mean(value: Floats, window: int) -> Floats:
    """Mean over the last `window` entries up to each one, fewer at the start."""
    total = np.concatenate(([0.0], np.cumsum(value)))
    high = np.arange(1, value.size + 1)
    low = np.maximum(high - window, 0)
    return np.asarray((total[high] - total[low]) / (high - low), dtype=np.float64)


def _by_version(value: Floats, start: np.ndarray, rows: np.ndarray) -> Floats:
    if not start.size:
        return np.empty(0)
    return np.asarray(np.add.reduceat(value, start) / rows, dtype=np.float64)


def _row_noise(value: Floats, version: Floats, row_se: Floats, cliff: Cliff | None) -> float:
    """The larger of the stated and the measured noise of one row; before a cliff that of the good rows counts."""
    stated = row_se[np.isfinite(row_se) & (row_se > 0.0)]
    own = float(np.sqrt(np.mean(stated**2))) if stated.size else 0.0
    # A run that dies at once has few differences but its cliff, which must not pass for noise either.
    measured = _measured_noise(value, version, least=rule.MIN_ROWS if stated.size else 1)
    if cliff is not None:
        measured = min(measured, _noise_of_good(value[cliff.up], version[cliff.up]))
    # Real swings of the policy also enter what is measured; they must not pass for noise without limit.
    return min(max(own, measured), rule.EXCESS_NOISE * own) if stated.size else measured


def _measured_noise(value: Floats, version: Floats, *, least: int) -> float:
    if value.size > 2 and 3 * (1 + np.count_nonzero(np.diff(version))) <= value.size:
        # Rows of one version share a policy: only their differences are noise, not those across a sync.
        return _robust_sigma(_second_differences(value)[version[2:] == version[:-2]], least)
    return white_noise(value, least)


def _noise_of_good(value: Floats, version: Floats) -> float:
    """Of a few rows their spread is the better measure, of a trend their differences: all err upwards.

    No row is dead here, so differences of zero count.
    """
    mean = float(np.mean(_second_differences(value))) * math.sqrt(math.pi / 2.0) / SECOND_DIFFERENCE
    return min(_measured_noise(value, version, least=1), float(np.std(value, ddof=1)), mean)


def _second_differences(value: Floats) -> Floats:
    return np.abs(value[:-2] - 2.0 * value[1:-1] + value[2:])


def _robust_sigma(second: Floats, least: int) -> float:
    moved = second[second > 1e-9]
    return float(MAD_TO_SIGMA * np.median(moved) / SECOND_DIFFERENCE) if moved.size >= least else 0.0
