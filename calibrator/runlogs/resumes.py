"""Logs that go back: runs that were resumed, and files that hold two runs."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from calibrator.errors import LogError
from calibrator.runlogs.curve import Floats
from calibrator.runlogs.place import RESTARTED_ROWS, TWO_RUNS, Placement
from calibrator.runlogs.table import LogTable

LEAST_BRANCH = 3
"""Rows from which a step back is a resume, not a row that was written again."""
INTERLEAVED = 8
INTERLEAVED_SHARE = 0.1


def settle_resumes(placed: Placement, table: LogTable, reference: str) -> list[str]:
    """Drop what a resumed run left behind; returns what was done. `reference` is the column that is compared.

    Rows that say again all that rows before them said are mere copies. Where values differ, the run went back and the
    last write counts; what the abandoned branch had beyond that is not part of the run. Raises LogError when the
    file seems to hold two runs.
    """
    if placed.by_order:
        return []
    copies = _copies(table, placed)
    placed.drop(copies)
    notes = [f"{copies.size} rows were written twice; they count once."] if copies.size else []
    column = table.columns[reference]
    rows, value = column.at(), column.known()
    rows, last = np.unique(rows[::-1], return_index=True)  # a row may hold a name twice, nested and plain
    value = value[::-1][last]
    keep = ~np.isnan(placed.end[rows]) & np.isfinite(value)
    rows, value = rows[keep], value[keep]
    end = placed.end[rows]
    differs = _differs(end, value)
    if not differs.any():
        return notes
    falls = np.flatnonzero(np.diff(end) <= 0) + 1
    _refuse_interleaved(falls, differs, end, placed.unit)
    return notes + _go_back(placed, rows, end, differs)


def _copies(table: LogTable, placed: Placement) -> np.ndarray:
    """Rows whose numbers all stood in a row before at the same place, as had those of their whole stretch.

    A stretch is what lies between rows of new places: a run that goes back may make some rows again to the digit.
    """
    sums = placed.end.view(np.uint64).copy()
    odd = np.random.default_rng(0).integers(1, 2**62, size=(len(table.columns), 2), dtype=np.uint64) * 2 + 1
    for column, (first, second) in zip(table.columns.values(), odd, strict=True):
        bits = column.known().view(np.uint64) * first
        sums[column.at()] += (bits ^ (bits >> np.uint64(29))) * second
    same, again = _seen_before(sums), _seen_before(placed.end)
    stretch = np.cumsum(~again)
    others = np.bincount(stretch[again & ~same], minlength=table.rows + 1)
    return np.flatnonzero(again & same & (others[stretch] == 0))


def _seen_before(values: np.ndarray) -> np.ndarray:
    _, first = np.unique(values, return_index=True)
    before = np.ones(values.size, dtype=bool)
    before[first] = False
    return before


def _differs(end: Floats, value: Floats) -> np.ndarray:
    """Which entries have another value than the entry before them with the same end."""
    order = np.argsort(end, kind="stable")
    again = end[order][1:] == end[order][:-1]
    other = value[order][1:] != value[order][:-1]
    differs = np.zeros(end.size, dtype=bool)
    differs[order[1:]] = again & other
    return differs


def _refuse_interleaved(falls: np.ndarray, differs: np.ndarray, end: Floats, unit: int) -> None:
    back = falls[differs[falls]]
    if back.size > max(INTERLEAVED, INTERLEAVED_SHARE * np.unique(end).size):
        raise LogError(
            f"{int(differs.sum())} steps come twice with different rewards, side by side: the file holds two runs (or "
            f"several rows of one step of {unit} update(s)). Give each run its own file, or number its rows one by one"
        )


def _go_back(placed: Placement, rows: np.ndarray, end: Floats, differs: np.ndarray) -> list[str]:
    notes = []
    falls = np.flatnonzero(np.diff(end) < 0) + 1
    for at, until in pairwise((*falls, end.size)):
        if not differs[at:until].any() or until - at < LEAST_BRANCH:
            continue
        again = float(end[at])
        before = rows[:at]
        earlier = np.flatnonzero(placed.end[: rows[at]] >= again)
        if again <= float(np.min(end)) and np.unique(end[:at]).size >= RESTARTED_ROWS:
            raise LogError(TWO_RUNS.format(rows=before.size))
        abandoned = float(np.nanmax(end[:at])) - again
        placed.drop(earlier)
        notes.append(
            f"The run went back to update {max(0.0, again - placed.unit):g} and went on from there; "
            f"{abandoned + placed.unit:g} updates that it had made before are left out."
        )
    return notes
