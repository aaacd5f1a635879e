"""Logs that go back: runs that were resumed, and files that hold two runs."""

from __future__ import annotations

import numpy as np

from calibrator.errors import LogError
from calibrator.runlogs.curve import Floats
from calibrator.runlogs.place import RESTARTED_ROWS, TWO_RUNS, Placement
from calibrator.runlogs.table import Column

LEAST_BRANCH = 3
"""Rows from which a step back is a resume, not a row that was written again."""
INTERLEAVED = 8
INTERLEAVED_SHARE = 0.1


def settle_resumes(placed: Placement, column: Column) -> list[str]:
    """Drop what a resumed run left behind; returns what was done. `column` is the one whose values are compared.

    A row that says again what its step said before is a mere copy. Where values differ, the run went back and the
    last write counts; what the abandoned branch had beyond that is not part of the run. Raises LogError when the
    file seems to hold two runs.
    """
    rows, value = column.at(), column.known()
    keep = ~np.isnan(placed.end[rows]) & np.isfinite(value)
    rows, value = rows[keep], value[keep]
    end = placed.end[rows]
    _, first, inverse = np.unique(end, return_index=True, return_inverse=True)
    repeated = first[inverse] < np.arange(end.size)
    if not repeated.any():
        return []
    differs = repeated & (value != value[first[inverse]])
    if not differs.any():
        return [f"{int(repeated.sum())} rows were written twice; they count once."]
    falls = np.flatnonzero(np.diff(end) <= 0) + 1
    _refuse_interleaved(falls, differs, end, placed.unit)
    return _go_back(placed, rows, end, falls, differs)


def _refuse_interleaved(falls: np.ndarray, differs: np.ndarray, end: Floats, unit: int) -> None:
    back = falls[differs[falls]]
    if back.size > max(INTERLEAVED, INTERLEAVED_SHARE * np.unique(end).size):
        raise LogError(
            f"{int(differs.sum())} steps come twice with different rewards, side by side: the file holds two runs (or "
            f"several rows of one step of {unit} update(s)). Give each run its own file, or number its rows one by one"
        )


def _go_back(
    placed: Placement, rows: np.ndarray, end: Floats, falls: np.ndarray, differs: np.ndarray
) -> list[str]:
    notes = []
    for at, until in zip(falls, (*falls[1:], end.size), strict=True):
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
