"""Non-finite numbers: which of them are the end of a run, and which a skipped update or a gap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrator.runlogs.series import Observed

NULLS = 3
"""Trailing nulls from which they stand for NaN."""


@dataclass(frozen=True)
class Broken:
    """The first row that is not finite for good: it stands for updates [begin, end)."""

    begin: int
    end: int


def first_broken(seen: Observed, *, nan_may_be_a_gap: bool, needs_life: bool) -> tuple[Broken | None, int]:
    """Where a column stops being finite for good, and how many other rows of it are not finite.

    A single non-finite gradient is skipped by most frameworks, and the run goes on. So only what does not come back
    counts, and a run that came back before had to be away for longer than ever at its end; with `needs_life` (gradient
    norms) zeros do not count as coming back. Where NaN may also stand for a cell that was not logged, it is not
    counted among the skipped, and says nothing about an infinity at the end.
    """
    bad = ~np.isfinite(seen.value)
    if not bad.any():
        return None, 0
    alive = ~bad & (seen.value != 0.0) if needs_life else ~bad
    last = int(np.flatnonzero(alive)[-1]) if alive.any() else -1
    after = np.flatnonzero(bad[last + 1 :])
    if not after.size:
        return None, int(bad.sum())
    first = last + 1 + int(after[0])
    gaps = nan_may_be_a_gap and np.isinf(seen.value[first:]).any()
    before = np.isinf(seen.value[:first]) if gaps else bad[:first]
    if bad.size - first <= _longest_stretch(before):
        return None, 0 if nan_may_be_a_gap else int(bad.sum())
    return Broken(int(seen.begin[first]), int(max(seen.end[first], seen.begin[first] + 1))), int(
        bad[:first].sum()
    )


def nulls_at_end(rows: np.ndarray, nulls: np.ndarray) -> np.ndarray:
    """Rows of the nulls that end a column, when there are enough of them and no such stretch was before."""
    if not nulls.size:
        return nulls
    marks = np.concatenate((np.zeros(rows.size, dtype=bool), np.ones(nulls.size, dtype=bool)))
    at = np.concatenate((rows, nulls))
    order = np.argsort(at, kind="stable")
    marks, at = marks[order], at[order]
    numbers = np.flatnonzero(~marks)
    tail = int(numbers[-1]) + 1 if numbers.size else 0
    longest = _longest_stretch(marks[:tail])
    enough = tail > 0 and at.size - tail >= max(NULLS, longest + 1)
    return np.asarray(at[tail:] if enough else at[:0])


def _longest_stretch(marks: np.ndarray) -> int:
    edges = np.flatnonzero(np.diff(np.concatenate(([0], marks.astype(np.int8), [0]))))
    return int(np.max(edges[1::2] - edges[::2])) if edges.size else 0
