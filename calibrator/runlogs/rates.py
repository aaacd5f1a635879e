"""The learning rate at every update, from rows that may be sparse, scaled or rounded."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from calibrator.runlogs.curve import Floats

REMEDY = "pass --learning-rate"
FAR = 3.0
"""Rows further apart than so many usual distances are a gap that is worth a word."""
WARMING = 1.1
"""The second row's rate over the first's from which the first lies in a warm-up."""
EVEN = (0.5, 2.0)
"""Second slope over the first of a steady decay; a cosine begins with 5/3, a drop to a lower level with 0."""
LATE_SHARE = 0.05
"""A log may begin this share of its length late and still speak for the updates before."""


@dataclass(frozen=True)
class Logged:
    """Rates that a log holds: `value[i]` at updates [begin[i], end[i]), sorted by end."""

    name: str
    value: Floats
    begin: Floats
    end: Floats
    rounded: bool
    of_last_update: bool = False
    """Whether the rate moves at every update and a row holds that of its last one; else it is constant in a row."""


def rates(logged: Logged | None, given: float | None, updates: int) -> tuple[Floats, list[str]]:
    """eta_u for every update u (NaN: not known), and what had to be assumed."""
    usable, problem = _usable(logged)
    if given is not None:
        return np.full(updates, given), _contradiction(usable, given)
    if usable is None or not usable.value.size:
        return np.full(updates, np.nan), [f"{problem}: cumulative learning rates are null; {REMEDY}."]
    return _spread(usable, updates)


def _usable(logged: Logged | None) -> tuple[Logged | None, str]:
    if logged is None:
        return None, "The log holds no learning rate"
    keep = np.isfinite(logged.value)
    value = logged.value[keep]
    known = replace(logged, value=value, begin=logged.begin[keep], end=logged.end[keep])
    if not value.size or not value.any():
        return None, f"{logged.name} is 0 in every row, rounded or not logged"
    if (value < 0).any():
        return None, f"{logged.name} is negative in some rows"
    if logged.rounded:
        return None, f"{logged.name} is rounded to three decimals ({value.max():g})"
    return known, ""


def _contradiction(logged: Logged | None, given: float) -> list[str]:
    if logged is None or not logged.value.size:
        return []
    low, high = float(logged.value.min()), float(logged.value.max())
    if low == high and abs(low - given) <= 1e-6 * given:
        return []
    held = f"{high:g}" if low == high else f"{low:g} to {high:g}"
    return [
        f"{logged.name} in the log is {held}; the rate that was passed, {given:g}, is used for every update."
    ]


def _spread(logged: Logged, updates: int) -> tuple[Floats, list[str]]:
    """Linear between what the rows hold; the updates before a late start are not known."""
    notes = []
    at, value = _knots(logged)
    out = np.interp(np.arange(updates), at, value)
    first = min(updates, int(at[0]))
    out[:first] = _before(at, value, np.arange(first, dtype=np.float64))
    if ((np.diff(at) > 1) & (np.diff(value) != 0)).any():
        notes.append(
            f"{logged.name} is not logged at every update and changes: it is interpolated linearly between rows."
        )
    start = float(logged.begin[0])
    gaps = logged.begin[1:] - logged.end[:-1]
    usual = float(np.median(np.diff(logged.end))) if logged.end.size > 1 else 1.0
    if start > max(2.0 * usual, LATE_SHARE * updates):
        out[: int(start)] = np.nan
        notes.append(
            f"The log begins at update {start:g}: the rates before are not known, so cumulative learning rates are "
            f"null; {REMEDY} if it was constant."
        )
    elif gaps.size and float(gaps.max()) > FAR * usual:
        widest = int(gaps.argmax())
        notes.append(
            f"No rates between updates {logged.end[widest]:g} and {logged.begin[widest + 1]:g} are logged."
        )
    return out, notes


def _knots(logged: Logged) -> tuple[Floats, Floats]:
    """Updates at which the rate is known, increasing, and the rates there."""
    last = np.maximum(logged.end - 1.0, logged.begin)
    if not logged.of_last_update:
        return np.ravel(np.column_stack((logged.begin, last))), np.repeat(logged.value, 2)
    # No update is made with a rate of 0, so such an end was logged after the scheduler's step: it is of the next one.
    after_step = logged.value.size > 1 and logged.value[-1] == 0.0 < logged.value[-2]
    return (logged.end if after_step else last), logged.value


def _before(at: Floats, value: Floats, wanted: Floats) -> Floats:
    """Rates before the first row: a warm-up comes from 0, a steady decay from above, anything else is held."""
    held = np.full(wanted.size, value[0])
    at, first = np.unique(at, return_index=True)
    value = value[first]
    if at.size < 2:
        return held
    slope = (value[1] - value[0]) / (at[1] - at[0])
    if value[1] > WARMING * value[0]:
        # The warm-up may have ended between the two rows: then the first alone tells how steep it was.
        slope = max(slope, value[0] / (at[0] + 1.0))
    elif not (value[1] < value[0] and _steady(at, value)):
        return held
    return np.asarray(np.maximum(value[0] + slope * (wanted - at[0]), 0.0))


def _steady(at: Floats, value: Floats) -> bool:
    """Whether the first three rows fall about evenly, as schedules do that decay all the time."""
    if at.size < 3:
        return False
    first, second = np.diff(value[:3]) / np.diff(at[:3])
    return bool(EVEN[0] <= second / first <= EVEN[1])
