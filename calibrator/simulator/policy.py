"""The success rate of a simulated policy, version by version: it learns, wanders, dips and, if it must, dies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.signal import lfilter
from scipy.special import expit, logit

from calibrator.runlogs.curve import Floats

Range = tuple[float, float]
Stream = np.random.Generator


@dataclass(frozen=True)
class Habits:
    """Ranges from which every run draws its own course. Rates are success rates, lengths are in updates."""

    start: Range = (0.05, 0.6)
    top: Range = (0.6, 0.98)
    """Level that learning tends to; a run that starts above it stays where it is."""
    learning: Range = (20.0, 500.0)
    """Updates until most is learned, drawn on a log scale."""
    steepness: Range = (0.5, 3.0)
    """Weibull exponent of the learning curve: below 1 a quick start with a long tail, above 1 an S-shape."""
    wander: Range = (0.05, 0.5)
    """Standard deviation of the autocorrelated part, in log-odds."""
    memory: Range = (3.0, 30.0)
    """Its autocorrelation length, drawn on a log scale."""
    dips: float = 3.0
    """Expected dips that recover, per 1000 updates."""
    dip_updates: Range = (5.0, 40.0)
    """From the beginning of a dip to its end, drawn on a log scale."""
    dip_depth: Range = (0.3, 1.0)
    """Share of the success rate that is lost at the bottom."""


@dataclass(frozen=True)
class Death:
    """How a policy ends, once it has left its validity region."""

    slope: Range = (0.5, 8.0)
    """Time constant of the fall in updates, drawn on a log scale."""
    residue: Range = (0.0, 0.03)
    """Success rate that remains, as a share of the one before."""


def healthy(
    habits: Habits, streams: Sequence[Stream], updates: int, learns_until: Floats | None = None
) -> Floats:
    """Success rate of the versions 0..updates, [n, updates + 1], of runs that do not die.

    Nothing is learned after the versions `learns_until` [n], where they are given and not NaN.
    """
    version = np.broadcast_to(np.arange(updates + 1.0), (len(streams), updates + 1))
    if learns_until is not None:
        version = np.fmin(version, learns_until[:, None])
    share = np.array([stream.random(6) for stream in streams]).T[..., None]
    start, top = _linear(habits.start, share[0]), _linear(habits.top, share[1])
    time, steepness = _log(habits.learning, share[2]), _linear(habits.steepness, share[3])
    learned = -np.expm1(-((version / time) ** steepness))
    level = start + np.maximum(top - start, 0.0) * learned
    noise = np.array([stream.standard_normal(updates + 1) for stream in streams])
    keep = np.exp(-1.0 / _log(habits.memory, share[5]))
    odds = logit(np.clip(level, 0.0, 1.0)) + _linear(habits.wander, share[4]) * _autocorrelated(noise, keep)
    level = expit(odds)
    for run, stream in enumerate(streams):
        for low, shape in dips(habits, stream, updates):
            level[run, low : low + shape.size] *= 1.0 - shape[: level.shape[1] - low]
    return np.asarray(level, dtype=np.float64)


def dips(habits: Habits, stream: Stream, updates: int) -> list[tuple[int, Floats]]:
    """First version and lost share of every dip, in order; each has recovered before the next begins.

    A dip falls for up to half of its length, may stay down, and comes back for the rest, linearly or ever slower.
    """
    share = stream.random((stream.poisson(habits.dips * updates / 1000.0), 6))
    lengths = _log(habits.dip_updates, share[:, 0]).astype(int)
    begins = 1 + (share[:, 2] * np.maximum(updates - lengths - 1, 0)).astype(int)
    depths = _linear(habits.dip_depth, share[:, 1])
    found, free = [], 1
    for index in np.argsort(begins, kind="stable"):
        low, length = int(begins[index]), int(lengths[index])
        if low < free or low + length > updates:
            continue
        free = low + 2 * length
        fall, stay, power = share[index, 3:].tolist()
        down = 0.05 + 0.45 * fall
        way = np.arange(1, length + 1) / (length + 1)
        back = np.minimum((1.0 - way) / (1.0 - min(down + 0.3 * stay, 0.9)), 1.0) ** (0.7 + 1.3 * power)
        found.append((low, depths[index] * np.minimum(np.minimum(way / down, 1.0), back)))
    return found


def die(level: Floats, at: Floats, death: Death, streams: Sequence[Stream]) -> Floats:
    """Let the runs with a version `at` [n] die there; NaN leaves a run alive. Returns the new levels [n, T + 1]."""
    versions = np.arange(level.shape[1])
    out = level.copy()
    for run in np.flatnonzero(np.isfinite(at)):
        slope, rest = _log(death.slope, streams[run].random()), _linear(death.residue, streams[run].random())
        left = rest + (1.0 - rest) * np.exp(-np.maximum(versions - at[run] + 1.0, 0.0) / slope)
        out[run] *= left
    return out


def _autocorrelated(noise: Floats, keep: Floats) -> Floats:
    """Stationary AR(1) of unit variance along the last axis; `keep` [n, 1] is its correlation over one update."""
    scaled = noise * np.sqrt(1.0 - keep**2)
    scaled[:, 0] = noise[:, 0]
    return np.array(
        [lfilter([1.0], [1.0, -float(one[0])], row) for one, row in zip(keep, scaled, strict=True)]
    )


def _linear(limits: Range, share: Floats | float) -> Floats:
    return np.asarray(limits[0] + (limits[1] - limits[0]) * np.asarray(share), dtype=np.float64)


def _log(limits: Range, share: Floats | float) -> Floats:
    return np.exp(_linear((float(np.log(limits[0])), float(np.log(limits[1]))), share))
