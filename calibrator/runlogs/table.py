"""The rows of a log as compact columns: only what may be needed, whatever the size of the file."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrator.runlogs.curve import Floats

MAX_NAMES = 5000
"""Distinct column names that are remembered: a log with more is none."""
DEEPEST = 4
MOST_ABSENT = 16
"""Cells of a block of rows for each one that is there, beyond which rows are taken one by one."""
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)
_WRAPPED = re.compile(r"(?:np|numpy|torch|tensor|float\d*|int\d*|[.])*\((.*?)(?:,.*)?\)")
_NON_FINITE = {
    **dict.fromkeys(("nan", "-nan", "+nan"), math.nan),
    **dict.fromkeys(("inf", "+inf", "infinity", "+infinity"), math.inf),
    **dict.fromkeys(("-inf", "-infinity"), -math.inf),
}
LONGEST_NUMBER = 64


def number(value: object) -> float | None:
    """The number that a cell holds, also as text; None for text, null and nothing."""
    kind = type(value)
    if kind is float:
        return value  # type: ignore[return-value]
    if isinstance(value, int):
        return float(value) if abs(value) < 10**300 else None
    return _number_of_text(value) if isinstance(value, str) else None


def _number_of_text(text: str) -> float | None:
    text = text.strip()
    if not text or len(text) > LONGEST_NUMBER:
        return None
    if _NUMBER.fullmatch(text):
        return float(text)
    wrapped = _WRAPPED.fullmatch(text)  # np.float64(1e-06), as newer consoles print
    if wrapped:
        return _number_of_text(wrapped.group(1)) if wrapped.group(1) != text else None
    return _NON_FINITE.get(text.lower())


@dataclass
class Column:
    """Sparse: `values[i]` stood in row `rows[i]`. A number that is not finite was written as such."""

    rows: array[int] = field(default_factory=lambda: array("i"))
    values: array[float] = field(default_factory=lambda: array("d"))
    nulls: array[int] = field(default_factory=lambda: array("i"))
    """Rows whose cell was there but empty of a number: null, which some writers put for NaN."""

    def at(self) -> NDArray[np.int64]:
        return np.frombuffer(self.rows, dtype=np.int32).astype(np.int64) if self.rows else _NO_ROWS

    def known(self) -> Floats:
        return np.frombuffer(self.values, dtype=np.float64) if self.values else np.empty(0)

    def is_known(self) -> bool:
        """Whether it holds any finite number."""
        return bool(np.isfinite(self.known()).any())


_NO_ROWS = np.empty(0, dtype=np.int64)


class LogTable:
    """Columns of a log, filled row by row. Names that `wanted` refuses are only remembered."""

    def __init__(self, wanted: Callable[[str], bool]) -> None:
        self.rows = 0
        self._unwanted: dict[str, None] = {}
        self._wanted = wanted
        self._columns: dict[str, Column | None] = {}

    @property
    def columns(self) -> dict[str, Column]:
        """The wanted columns that hold any number."""
        return {name: column for name, column in self._columns.items() if column and column.rows}

    @property
    def numeric(self) -> list[str]:
        """Names of all columns that hold numbers."""
        return [*self.columns, *self._unwanted]

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a row. Nested objects become `outer/inner`; verl's `data` and the like add no prefix."""
        self.add_all([row])

    def add_all(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append rows, column by column: that is several times as fast as row by row."""
        names: set[str] = set().union(*rows)
        if "non_finite" in names:
            rows = [_with_non_finite(row) for row in rows]
        # Rows that have hardly a name in common are none of one log, and every name would look at every row.
        if len(names) * len(rows) > MOST_ABSENT * sum(map(len, rows)):
            for row in rows:
                self._append([row])
        else:
            self._append(rows)

    def _append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._fill(rows, range(self.rows, self.rows + len(rows)), "", 0)
        self.rows += len(rows)

    def _fill(self, rows: Sequence[Mapping[str, Any]], index: Sequence[int], prefix: str, depth: int) -> None:
        keys = list(rows[0]) if rows else []
        more = set().union(*rows).difference(keys) if len(rows) > 1 else ()
        for key in (*keys, *sorted(more)):
            name = prefix + key if prefix else key
            if self._columns.get(name, self) is None:
                continue  # known, and not wanted
            cells = _cells(rows, key)
            nested = (
                [at for at, cell in enumerate(cells) if type(cell) is dict]
                if dict in set(map(type, cells))
                else []
            )
            if nested and depth < DEEPEST:
                inner = prefix if key in _ENVELOPES else f"{name}/"
                self._fill([cells[at] for at in nested], [index[at] for at in nested], inner, depth + 1)
            if len(nested) < len(cells):
                self._extend(name, cells, index)

    def _extend(self, name: str, cells: list[Any], index: Sequence[int]) -> None:
        column = self._columns.get(name) or self._open(name, cells)
        if column is None:
            return
        try:
            column.values.extend(_numbers(cells))
            column.rows.extend(index)
        except (TypeError, ValueError, OverflowError):
            for at, cell in zip(index, cells, strict=True):
                _put(column, at, cell)

    def _open(self, name: str, cells: list[Any]) -> Column | None:
        """A new column if it is wanted; a name without numbers so far is looked at again when it comes back."""
        if len(self._columns) >= MAX_NAMES:
            return None
        if self._wanted(name):
            self._columns[name] = column = Column()
            return column
        if any(number(cell) is not None for cell in cells):
            self._columns[name] = None
            self._unwanted[name] = None
        return None


def _cells(rows: Sequence[Mapping[str, Any]], key: str) -> list[Any]:
    try:
        return [row[key] for row in rows]
    except KeyError:
        return [row.get(key, _ABSENT) for row in rows]


def _numbers(cells: list[Any]) -> array[float]:
    """All cells at once. Raises TypeError, ValueError or OverflowError when any is no plain number."""
    return array("d", map(float, cells)) if type(cells[0]) is str else array("d", cells)


def _with_non_finite(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Our own rows hold null for a number that is not finite, and list its name."""
    named = row.get("non_finite")
    if not isinstance(named, list):
        return row
    return {**row, **{name: math.nan for name in named if isinstance(name, str) and row.get(name, 0) is None}}


def _put(column: Column, row: int, cell: object) -> None:
    found = number(cell)
    if found is not None:
        column.rows.append(row)
        column.values.append(found)
    elif cell is None or (isinstance(cell, str) and cell.strip().lower() in ("null", "none")):
        column.nulls.append(row)


_ABSENT = object()
_ENVELOPES = frozenset({"data", "metrics", "logs"})
