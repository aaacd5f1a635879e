"""The learning rate at every update, from rows that may be sparse, scaled or rounded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrator.runlogs.curve import Floats

REMEDY = "pass --learning-rate"
FAR = 3.0
"""Rows further apart than so many usual distances are a gap that is worth a word."""
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
    known = Logged(logged.name, value, logged.begin[keep], logged.end[keep], logged.rounded)
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
    """Constant within a row, linear between rows; the updates before a late start are not known."""
    notes = []
    knots = np.ravel(np.column_stack((logged.begin, np.maximum(logged.end - 1.0, logged.begin))))
    values = np.repeat(logged.value, 2)
    out = np.interp(np.arange(updates), knots, values)
    gaps = logged.begin[1:] - logged.end[:-1]
    changing = (gaps > 0) & (np.diff(logged.value) != 0)
    if changing.any():
        notes.append(
            f"{logged.name} is not logged at every update and changes: it is interpolated linearly between rows."
        )
    start = float(logged.begin[0])
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
