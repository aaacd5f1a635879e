"""Reads our own `metrics.jsonl` (schema: `trainer.metrics.MetricsRow`) into a Curve."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calibrator.errors import CorruptStudyError
from calibrator.runlogs.curve import Curve, Floats, Series
from trainer.metrics import FATAL

Row = Mapping[str, Any]

WITNESSES = (
    "entropy",
    "grad_norm",
    "grad_cosine",
    "ess",
    "response_length",
    "truncated",
    "group_mass_mean",
    "group_mass_max",
    "cap_activation",
    "log_ratio_abs_mean",
    "log_ratio_max",
    "lag_max",
    "lag_mean",
    "signal",
    "mismatch_mean",
    "mismatch_log_ratio",
    "bias_sq",
    "full_grad_sq",
)

SPARSEST = 1000
"""Updates a row, beyond which a number is a broken one: arrays are as long as the largest update."""
AWAY = "move the folder of the run away"
LR_TOLERANCE = 1e-6  # relative; both sides are sums of the same doubles


def read_metrics(path: Path) -> Curve:
    """The curve of one trial. A torn last line is ignored; of rows with the same update the last one counts.

    An empty file gives a Curve of 0 updates. Raises CorruptStudyError, naming file and line, when a line
    before the last one cannot be read, and OSError when the file cannot be opened.
    """
    lines = path.read_bytes().split(b"\n")
    rows, numbers = _parse(lines, path)
    try:
        return curve_from_rows(rows)
    except (TypeError, ValueError, KeyError, OverflowError):
        for row, number in zip(rows, numbers, strict=True):
            _check_row(row, f"{path}, line {number}")
        raise CorruptStudyError(f"{path}: its rows do not follow one schema; {AWAY}") from None


def curve_from_rows(rows: Sequence[Row]) -> Curve:
    """The curve of rows in memory, in the order in which they were written; they are not changed.

    Arrays over updates have length 1 + the largest update; an update without a row holds NaN.
    Raises KeyError, TypeError or ValueError for a row that does not follow `MetricsRow`.
    """
    latest = {int(row["update"]): row for row in rows}
    if not latest:
        return Curve(updates=0, learning_rate=np.empty(0), rewards=_no_series("reward"))
    if min(latest) < 0:
        raise ValueError("negative update")
    kept = [latest[update] for update in sorted(latest)]
    at = np.array(sorted(latest), dtype=np.int64)
    updates = int(at[-1]) + 1
    if updates > SPARSEST * len(rows):
        raise ValueError(f"update {at[-1]} in a log of {len(rows)} rows")
    rates = _spread(_column(kept, "learning_rate"), at, updates)
    lags = _column(kept, "lag_max")
    return Curve(
        updates=updates,
        learning_rate=rates,
        rewards=_rewards(kept, at),
        probes=_probes(kept, at),
        witnesses=_witnesses(kept, at, updates),
        non_finite_update=_first_non_finite(kept, at),
        max_lag=int(np.nanmax(lags)) if np.isfinite(lags).any() else None,
        warnings=_warnings(rows, kept, rates),
    )


def _parse(lines: list[bytes], path: Path) -> tuple[list[Row], list[int]]:
    numbers = [number for number, line in enumerate(lines, start=1) if line.strip(b" \r\t\0")]
    texts = [lines[number - 1] for number in numbers]
    try:
        # One call for the whole file is twice as fast as one a line.
        rows = json.loads(b"[" + b",".join(texts) + b"]")
        if len(rows) == len(texts) and all(isinstance(row, dict) and "update" in row for row in rows):
            return rows, numbers
    except (ValueError, RecursionError):
        pass
    return _parse_slowly(texts, numbers, path)


def _parse_slowly(texts: list[bytes], numbers: list[int], path: Path) -> tuple[list[Row], list[int]]:
    rows: list[Row] = []
    for text, number in zip(texts, numbers, strict=True):
        try:
            row = json.loads(text.decode())  # of bytes, json guesses the encoding
        except (ValueError, RecursionError) as error:
            if number == numbers[-1]:
                break
            raise CorruptStudyError(f"{path}, line {number}: not JSON ({error}); {AWAY}") from None
        if not isinstance(row, dict) or "update" not in row:
            raise CorruptStudyError(f"{path}, line {number}: not a row of metrics (no `update`); {AWAY}")
        rows.append(row)
    return rows, numbers[: len(rows)]


def _check_row(row: Row, where: str) -> None:
    try:
        curve_from_rows([row])
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise CorruptStudyError(f"{where}: not a row of metrics ({error}); {AWAY}") from None


def _column(rows: Sequence[Row], key: str) -> Floats:
    """One value a row; NaN where the key is absent or null."""
    column = np.array([row.get(key) for row in rows], dtype=np.float64)
    if column.ndim != 1:
        raise ValueError(f"`{key}` is not a number")
    return column


def _spread(values: Floats, at: np.ndarray, updates: int) -> Floats:
    """Put the value of each row at its update; NaN elsewhere."""
    out = np.full(updates, np.nan)
    out[at] = values
    return out


def _no_series(name: str) -> Series:
    return Series(name, *(np.empty(0) for _ in range(4)))


def _series(name: str, version: Floats, value: Floats, se: Floats, seen: Floats) -> Series:
    keep = np.flatnonzero(np.isfinite(value) & np.isfinite(version))
    order = keep[np.argsort(version[keep], kind="stable")]
    return Series(name, version[order], value[order], se[order], seen[order])


def _rewards(rows: Sequence[Row], at: np.ndarray) -> Series:
    value, se = _column(rows, "reward_mean"), _column(rows, "reward_se")
    return _series("reward", _column(rows, "version"), value, se, at + 1.0)


def _probes(rows: Sequence[Row], at: np.ndarray) -> Series | None:
    keep = [index for index, row in enumerate(rows) if row.get("probe_reward") is not None]
    probed = [rows[index] for index in keep]
    version, seen = _column(probed, "probe_version"), at[keep] + 1.0
    value, se = _column(probed, "probe_reward"), _column(probed, "probe_se")
    start = rows[0]
    if start.get("initial_reward") is not None:
        version, seen = np.append(0.0, version), np.append(0.0, seen)
        value = np.append(_column([start], "initial_reward"), value)
        se = np.append(_column([start], "initial_se"), se)
    return _series("probe", version, value, se, seen) if version.size else None


def _witnesses(rows: Sequence[Row], at: np.ndarray, updates: int) -> dict[str, Floats]:
    columns = {key: _column(rows, key) for key in WITNESSES}
    return {key: _spread(column, at, updates) for key, column in columns.items() if np.isfinite(column).any()}


def _first_non_finite(rows: Sequence[Row], at: np.ndarray) -> int | None:
    """Rows in memory hold the values themselves, rows of the file list their names."""
    named = [any(key in FATAL for key in row["non_finite"]) if "non_finite" in row else False for row in rows]
    values = np.array([[row.get(key, 0.0) for key in FATAL] for row in rows], dtype=np.float64)
    missing = np.array([[row.get(key, 0.0) is None for key in FATAL] for row in rows])
    broken = np.array(named) | (~np.isfinite(values) & ~missing).any(axis=1)
    return int(at[broken.argmax()]) if broken.any() else None


def _warnings(rows: Sequence[Row], kept: Sequence[Row], rates: Floats) -> tuple[str, ...]:
    found = []
    if len(kept) < len(rows):
        found.append(
            f"{len(rows) - len(kept)} rows were written twice; the last write of each update counts."
        )
    if len(kept) < len(rates):
        found.append(f"{len(rates) - len(kept)} updates have no row.")
    stated = kept[-1].get("cumulative_lr")
    if stated is not None and abs(float(rates.sum()) - float(stated)) > LR_TOLERANCE * abs(float(stated)):
        found.append(f"The rates sum to {float(rates.sum()):.6g}, the log states {float(stated):.6g}.")
    return tuple(found)
