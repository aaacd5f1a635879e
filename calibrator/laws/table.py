"""Reader of RUNS.csv: one judged run a row.

Columns: run, estimator, sync_interval, learning_rate, updates, verdict; optional max_lag (else S - 1), seed,
onset_low, onset_high (updates), cumulative_lr, cumulative_lr_onset_low, cumulative_lr_onset_high (else eta
times updates, which is right only for a constant rate). Any further column separates strata.
"""

from __future__ import annotations

import codecs
import csv
import io
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from calibrator.errors import StudyConfigError
from calibrator.laws.types import Run
from calibrator.verdicts.types import Verdict

REQUIRED = ("run", "estimator", "sync_interval", "learning_rate", "updates", "verdict")
OPTIONAL = (
    "max_lag",
    "seed",
    "onset_low",
    "onset_high",
    "cumulative_lr",
    "cumulative_lr_onset_low",
    "cumulative_lr_onset_high",
)
KNOWN = frozenset(REQUIRED + OPTIONAL)
VERDICTS = frozenset(verdict.value for verdict in Verdict)
LEAST_RATE, MOST_RATE, MOST_COUNT = 1e-15, 1e3, 10**9
"""Smaller and larger learning rates, and larger counts, are typing errors; a rate of 0 was never applied."""
TOLERANCE = 1e-6
"""Relative rounding that an L written with few digits may carry."""


def read_runs(path: Path) -> list[Run]:
    """Runs of a table, in its order.

    Raises:
        StudyConfigError: the file cannot be read, a column is missing, or a cell is wrong; the text names
            the file, the line (the header is line 1) and the column.
    """
    rows = list(_rows(path, _text_of(path)))
    if not rows:
        raise StudyConfigError(f"{path}: holds no runs; give one row for each run.")
    runs = [_Row(path, number, cells).run() for number, cells in rows]
    _refuse_repeats(path, [number for number, _ in rows], runs)
    return runs


def _text_of(path: Path) -> str:
    try:
        content = path.read_bytes()
        if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise StudyConfigError(f"{path} is text in UTF-16, save it as UTF-8.")
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise StudyConfigError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise StudyConfigError(f"{path} is not text in UTF-8 (byte {error.start}).") from error
    if not text.strip():
        raise StudyConfigError(f"{path} is empty; give a header and one row for each run.")
    return text


def _rows(path: Path, text: str) -> Iterator[tuple[int, dict[str, str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True)
    try:
        header = _checked(path, [name.strip() for name in next(reader, [])])
        for line in reader:
            cells = [cell.strip() for cell in line]
            if not any(cells):
                continue
            if len(cells) != len(header):
                raise StudyConfigError(
                    f"{path}, line {reader.line_num}: {len(cells)} cells where the header has {len(header)}."
                )
            yield reader.line_num, dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise StudyConfigError(f"{path}, line {reader.line_num} is not CSV: {error}.") from error


def _checked(path: Path, header: list[str]) -> list[str]:
    if len(header) == 1 and (found := next((mark for mark in ";\t|" if mark in header[0]), None)):
        raise StudyConfigError(f"{path}: columns are separated by {found!r}; separate them by commas.")
    missing = [name for name in REQUIRED if name not in header]
    if missing:
        raise StudyConfigError(
            f"{path}: column(s) {', '.join(missing)} missing; needed: {', '.join(REQUIRED)}."
        )
    if len(set(header)) < len(header):
        raise StudyConfigError(f"{path}: two columns have the same name in the header.")
    if "" in header:
        raise StudyConfigError(f"{path}: column {header.index('') + 1} has no name in the header.")
    return header


def _refuse_repeats(path: Path, lines: list[int], runs: list[Run]) -> None:
    seen: dict[tuple[object, ...], int] = {}
    for line, run in zip(lines, runs, strict=True):
        key = (run.run, run.estimator, tuple(sorted(run.strata.items())))
        if key in seen:
            raise StudyConfigError(
                f"{path}, line {line}, column 'run': {run.run!r} appears twice, first in line {seen[key]}; give each "
                "run its own name."
            )
        seen[key] = line


def _on_clock(given: float | None, onset: float | None, rate: float, total: float) -> float | None:
    """L at an onset: as given, else eta times the onset, but never beyond the L of the whole run."""
    return min(rate * onset, total) if given is None and onset is not None else given


class _Row:
    """One row's cells, and errors that name it."""

    def __init__(self, path: Path, number: int, cells: Mapping[str, str]) -> None:
        self._path, self._number, self._cells = path, number, cells

    def run(self) -> Run:
        verdict = self._verdict()
        sync_interval = self._whole("sync_interval", least=1)
        rate = self._number_in("learning_rate", most=MOST_RATE)
        updates = self._whole("updates")
        if 0 < rate < LEAST_RATE:
            raise self._error(
                "learning_rate", f"{self._cells['learning_rate']!r} must be 0 or at least {LEAST_RATE:g}."
            )
        given = self._optional("cumulative_lr")
        total = rate * updates if given is None else given
        low, high = self._pair("onset_low", "onset_high", verdict)
        L_low, L_high = self._pair("cumulative_lr_onset_low", "cumulative_lr_onset_high", verdict)
        self._within("onset_low", low, updates, "updates")
        self._within("cumulative_lr_onset_low", L_low, total, "cumulative_lr")
        return Run(
            run=self._text("run"),
            estimator=self._text("estimator"),
            strata={k: v for k, v in self._cells.items() if v and k not in KNOWN},
            sync_interval=sync_interval,
            max_lag=self._whole("max_lag", default=sync_interval - 1),
            learning_rate=rate,
            seed=self._whole("seed", default=0),
            updates=updates,
            verdict=verdict,
            cumulative_lr=total,
            onset_low=low,
            onset_high=high,
            cumulative_lr_onset_low=_on_clock(L_low, low, rate, total),
            cumulative_lr_onset_high=_on_clock(L_high, high, rate, total),
        )

    def _error(self, column: str, what: str) -> StudyConfigError:
        return StudyConfigError(f"{self._path}, line {self._number}, column {column!r}: {what}")

    def _text(self, column: str) -> str:
        if not self._cells[column]:
            raise self._error(column, "is empty.")
        return self._cells[column]

    def _verdict(self) -> Verdict:
        text = self._text("verdict").lower()
        if text not in VERDICTS:
            raise self._error("verdict", f"{text!r} is none of {', '.join(Verdict)}.")
        return Verdict(text)

    def _optional(self, column: str) -> float | None:
        return self._number_in(column, most=MOST_RATE * MOST_COUNT) if self._cells.get(column) else None

    def _within(self, column: str, value: float | None, end: float, what: str) -> None:
        """An onset after the end of the run was not observed in it."""
        if value is not None and value > end * (1 + TOLERANCE):
            raise self._error(column, f"{value:g} lies after the end of the run, {what} = {end:g}.")

    def _number_in(self, column: str, *, most: float = math.inf) -> float:
        text = self._text(column)
        try:
            value = float(text)
        except ValueError:
            raise self._error(column, f"{text!r} is not a number.") from None
        if not math.isfinite(value) or value < 0:
            raise self._error(column, f"{text!r} must be finite and not negative.")
        if value > most:
            raise self._error(column, f"{text!r} must be at most {most:g}.")
        return value

    def _whole(self, column: str, *, least: int = 0, default: int | None = None) -> int:
        if default is not None and not self._cells.get(column):
            return default
        value = self._number_in(column, most=MOST_COUNT)
        if value != int(value) or value < least:
            raise self._error(column, f"{self._cells[column]!r} must be a whole number of at least {least}.")
        return int(value)

    def _pair(self, low: str, high: str, verdict: Verdict) -> tuple[float | None, float | None]:
        """An onset interval; a run that is no event and not degraded has none, whatever the cells say."""
        if not (verdict.is_event or verdict is Verdict.DEGRADED):
            return None, None
        first, last = self._optional(low), self._optional(high)
        if first is not None and last is not None and first > last:
            raise self._error(low, f"{first:g} lies after {high} = {last:g}.")
        return first, last
