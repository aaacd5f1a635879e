"""Binomial rewards over P prompts x G completions whose success rates differ from prompt to prompt.

The successes of a group are beta-binomial. They are drawn with Walker's alias method (ACM TOMS 3, 1977) from tables
over a grid of levels: one uniform number and two look-ups a group, ten times as fast as drawing beta and binomial.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.stats import betabinom

from calibrator.runlogs.curve import Floats

LEVELS = 1024
"""Grid of levels, even in arcsin(sqrt(p)), on which binomial noise is equal everywhere."""
Counts = NDArray[np.uint8]


@dataclass(frozen=True)
class _Alias:
    """Column k of row i is kept with probability `keep`, else replaced by `other`; both [LEVELS + 1, G + 1]."""

    keep: NDArray[np.float32]
    other: Counts


def draw(level: Floats, uniform: NDArray[np.float32], *, group: int, spread: float) -> Counts:
    """Successes among `group` completions for each of `uniform` [..., P], at the success rates `level` [...].

    The rate of a prompt is Beta(spread p, spread (1 - p)), so its variance is p (1 - p) / (1 + spread).
    """
    table = _table(group, spread)
    row = np.rint(np.arcsin(np.sqrt(np.clip(level, 0.0, 1.0))) * (2.0 * LEVELS / np.pi)).astype(np.int32)
    scaled = uniform * np.float32(group + 1)
    column = np.minimum(scaled.astype(np.int32), np.int32(group))
    at = row[..., None] * np.int32(group + 1) + column
    kept = scaled - column < table.keep.ravel().take(at)
    return np.where(kept, column.astype(np.uint8), table.other.ravel().take(at))


def mean_and_error(counts: Counts, group: int) -> tuple[Floats, Floats]:
    """Mean reward and its standard error with prompts as clusters, from counts [..., P]."""
    share = counts / float(group)
    error = share.std(axis=-1, ddof=1) / counts.shape[-1] ** 0.5
    return np.asarray(share.mean(axis=-1)), np.asarray(error)


@lru_cache(maxsize=8)
def _table(group: int, spread: float) -> _Alias:
    level = np.sin(np.linspace(0.0, np.pi / 2.0, LEVELS + 1)) ** 2
    inner = level[1:-1, None]
    mass = np.zeros((LEVELS + 1, group + 1))
    mass[1:-1] = betabinom.pmf(np.arange(group + 1), group, spread * inner, spread * (1.0 - inner))
    mass[0, 0] = mass[-1, -1] = 1.0
    return _alias(mass)


def _alias(mass: Floats) -> _Alias:
    """Tables of all rows at once: the poorest open column takes what it lacks from the richest."""
    rows, columns = mass.shape
    left = mass * columns
    open_, other = np.ones_like(left, dtype=bool), np.tile(np.arange(columns, dtype=np.uint8), (rows, 1))
    keep = np.ones_like(left)
    index = np.arange(rows)
    for _ in range(columns - 1):
        poor = np.where(open_, left, np.inf).argmin(axis=1)
        rich = np.where(open_, left, -np.inf).argmax(axis=1)
        keep[index, poor] = np.minimum(left[index, poor], 1.0)
        other[index, poor] = rich
        left[index, rich] -= 1.0 - keep[index, poor]
        open_[index, poor] = False
    return _Alias(keep.astype(np.float32), other)
