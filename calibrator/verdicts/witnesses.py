"""Early warnings: what moved before the reward fell. They never convict and never acquit."""

from __future__ import annotations

import warnings

import numpy as np

from calibrator.runlogs.curve import Curve, Floats
from calibrator.verdicts import settings as rule
from calibrator.verdicts.levels import MAD_TO_SIGMA, white_noise
from calibrator.verdicts.types import Evidence

ABSOLUTE = {"grad_cosine": rule.COSINE_ALARM}
"""Witnesses with an alarm level of their own; all others are compared with their own early level."""
MAX_LEAD_UPDATES, MAX_LEAD_SYNCS = 100, 10
"""What left its early level longer before the fall than this is the course of learning, not a warning."""
NO_WARNING = frozenset({"signal", "lag_mean", "bias_sq", "full_grad_sq"})
"""The share of groups with signal falls when the task is solved; lag and bias say how stale a batch is."""
EARLY_SHARE = 0.25
WINDOW_ROWS = 5


def early_warnings(curve: Curve, onset: float, sync_interval: int) -> list[Evidence]:
    """One entry for each witness that left its early level before version `onset` and did not come back."""
    found = []
    longest = _longest_lead(sync_interval)
    for name in sorted(curve.witnesses.keys() - NO_WARNING):
        values = curve.witnesses[name]
        alarm = alarm_update(name, values, int(onset), sync_interval)
        if alarm is not None and onset - alarm <= longest:
            lead = onset - alarm
            sentence = (
                f"{_words(name, values, alarm)} from update {alarm} on, {lead:g} updates before the fall."
            )
            found.append(Evidence(code=f"early_{name}", sentence=sentence, update=float(alarm)))
    return found


def _longest_lead(sync_interval: int) -> int:
    return max(MAX_LEAD_UPDATES, MAX_LEAD_SYNCS * sync_interval)


def alarm_update(name: str, values: Floats, end: int, sync_interval: int) -> int | None:
    """First update of the stretch before `end` in which the witness was out of bounds without a break.

    None when there is no such stretch, or when it is too long to be a warning.
    """
    values, window = values[:end], max(WINDOW_ROWS, sync_interval)
    if values.size < 4 * WINDOW_ROWS:
        return None
    begin = max(0, values.size - _longest_lead(sync_interval) - 1)
    course = running_median(values[max(0, begin - window + 1) :], window)[-(values.size - begin) :]
    inside = np.flatnonzero(~_out_of_bounds(name, values, course))
    first = begin + int(inside[-1]) + 1 if inside.size else 0
    return first if 0 < first <= values.size - WINDOW_ROWS else None


def running_median(values: Floats, window: int) -> Floats:
    """Median of the last `window` entries up to each one; NaN entries are left out."""
    if not values.size:
        return values
    padded = np.concatenate((np.full(window - 1, np.nan), values))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a window without any value gives NaN
        view = np.lib.stride_tricks.sliding_window_view(padded, window)
        return np.asarray(np.nanmedian(view, axis=1), dtype=np.float64)


def _out_of_bounds(name: str, values: Floats, course: Floats) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        if name in ABSOLUTE:
            return np.asarray(course > ABSOLUTE[name])
        early = values[: max(2 * WINDOW_ROWS, int(EARLY_SHARE * values.size))]
        early = early[np.isfinite(early)]
        if early.size < WINDOW_ROWS:
            return np.zeros(course.size, dtype=bool)
        middle = float(np.median(early))
        spread = MAD_TO_SIGMA * float(np.median(np.abs(early - middle)))
        spread = max(spread, white_noise(early), 1e-3 * abs(middle), 1e-12)
        return np.asarray(np.abs(course - middle) > rule.WITNESS_SIGMAS * spread)


def _words(name: str, values: Floats, alarm: int) -> str:
    label = name.replace("_", " ")
    if name in ABSOLUTE:
        return f"{label} stood above {ABSOLUTE[name]:g}"
    before, after = np.nanmedian(values[:alarm]), np.nanmedian(values[alarm : alarm + WINDOW_ROWS])
    return f"{label} left its early level of {before:.3g} {'upwards' if after > before else 'downwards'}"
