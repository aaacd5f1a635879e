"""The rows of a log as compact columns: only what may be needed, whatever the size of the file."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrator.runlogs.curve import Floats

MAX_NAMES = 5000
"""Distinct column names that are remembered: a log with more is none."""
DEEPEST = 4
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
    if kind is int:
        return float(value) if abs(value) < 10**300 else None  # type: ignore[arg-type]
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
        self._fill(row, "", 0)
        self.rows += 1

    def _fill(self, row: Mapping[str, Any], prefix: str, depth: int) -> None:
        columns, index = self._columns, self.rows
        for key, value in row.items():
            name = prefix + key if prefix else key
            if type(value) is dict:
                if depth < DEEPEST:
                    self._fill(value, prefix if key in _ENVELOPES else f"{name}/", depth + 1)
                continue
            column = columns.get(name)
            if column is None:
                if name in columns:
                    continue
                column = self._open(name, value)
                if column is None:
                    continue
            if type(value) is float:
                column.rows.append(index)
                column.values.append(value)
            else:
                self._put(column, value)
        if "non_finite" in row:
            self._name_non_finite(row["non_finite"])

    def _open(self, name: str, value: object) -> Column | None:
        if len(self._columns) >= MAX_NAMES:
            return None
        numeric = number(value) is not None
        if not numeric and value is not None and not _is_gap(value):
            return None  # text in this row; another may hold a number
        wanted = self._wanted(name)
        if numeric and not wanted:
            self._unwanted[name] = None
        if numeric or wanted:
            self._columns[name] = Column() if wanted else None
        return self._columns.get(name)

    def _put(self, column: Column, value: object) -> None:
        found = number(value)
        if found is not None:
            column.rows.append(self.rows)
            column.values.append(found)
        elif value is None or (isinstance(value, str) and value.strip().lower() in ("null", "none")):
            column.nulls.append(self.rows)

    def _name_non_finite(self, names: object) -> None:
        """Our own rows hold null for a number that is not finite, and list its name."""
        for name in names if isinstance(names, list) else ():
            column = self._columns.get(name) if isinstance(name, str) else None
            if column is not None:
                column.rows.append(self.rows)
                column.values.append(math.nan)


_ENVELOPES = frozenset({"data", "metrics", "logs"})


def _is_gap(value: object) -> bool:
    return isinstance(value, str) and value.strip().lower() in ("", "null", "none")
