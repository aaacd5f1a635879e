"""Logs of lines: JSON objects, Python dictionaries, `key:value` lines of consoles, and printed tables, also mixed."""

from __future__ import annotations

import gc
import json
import re
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from calibrator.runlogs.formats.source import Source, line_blocks
from calibrator.runlogs.table import LogTable, number

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ITEM = re.compile(r"['\"]([^'\"]{1,200})['\"]\s*:\s*(?:['\"]([^'\"]{0,64})['\"]|([-+.\w()]{1,64}))")
_STEP = re.compile(r"\bstep\b\s?[:=#]?\s?(\d{1,18})\b(?!\.\d)", re.IGNORECASE)
_BETWEEN = re.compile(r"\s+[-|]\s+|,\s+|\s{2,}|\t")
_PAIR = re.compile(r"\s*([^:=]{1,120}?)\s*[:=]\s*(\S{1,64})")
_TABLE_HEAD = re.compile(r"\btrain step (\d{1,18})\s*/\s*(\d{1,18})\s+done", re.IGNORECASE)
_CELLS = re.compile(r"[│┃|]")
_THREE_DECIMALS = re.compile(r"[-+]?\d+\.\d{3}")
FEW_LINES = 16
"""Lines that are read one by one when any of them is no JSON object; more are halved first."""
LONGEST_TEXT = 200_000
"""Longer lines are data or stack traces, never a row that a console prints."""

VERL, TRL, JSONL, CONSOLE = "verl-console", "trl-console", "jsonl", "console"


def read_lines(path: Path, table: LogTable) -> Source:
    """Rows of any log of lines; lines that are no rows are passed over, and counted where all should be rows."""
    reader = _Reader(table)
    collecting = gc.isenabled()
    gc.disable()  # a collection would walk through the rows of a block, which hold no cycles
    try:
        for lines, torn in line_blocks(path):
            reader.take(lines, torn=torn)
    finally:
        if collecting:
            gc.enable()
    reader.flush()
    return Source(
        table,
        form=reader.form(),
        notes=reader.notes(),
        last_step=reader.last_step,
        rounded=reader.form() == VERL and reader.rounded,
    )


class _Reader:
    def __init__(self, table: LogTable) -> None:
        self._table = table
        self._kinds: Counter[str] = Counter()
        self._line = 0
        self._bad: list[int] = []
        self._bad_count = 0
        self._torn = False
        self._open_table: dict[str, str] | None = None
        self._width = 0
        self.last_step: int | None = None
        self.rounded = True

    def form(self) -> str:
        """The kind of most rows."""
        return self._kinds.most_common(1)[0][0] if self._kinds else JSONL

    def notes(self) -> list[str]:
        found = []
        if self._torn:
            found.append("The last line is torn; it is left out.")
        if self._bad_count and self.form() == JSONL:
            where = ", ".join(map(str, self._bad))
            more = ", ..." if self._bad_count > len(self._bad) else ""
            found.append(
                f"{self._bad_count} lines are no JSON objects (line {where}{more}); they are left out."
            )
        return found

    def take(self, lines: list[bytes], *, torn: bool) -> None:
        """Add the rows of some lines; `torn`: the only line has no end."""
        rows = _objects(lines)
        if rows is None and not all(lines):
            rows = _objects([line for line in lines if line.strip(b" \t\r\0")])
        if rows is not None:
            self._line += len(lines)
            self._table.add_all(rows)
            self._kinds[JSONL] += len(rows)
        elif len(lines) > FEW_LINES:
            half = len(lines) // 2
            self.take(lines[:half], torn=False)
            self.take(lines[half:], torn=torn)
        else:
            for line in lines:
                self._line += 1
                if line.strip(b" \t\r\0"):
                    self._one(line, torn=torn)

    def flush(self) -> None:
        """Add the printed table that is still open."""
        if self._open_table and len(self._open_table) > 1:
            self._row("console", self._open_table)
        self._open_table = None

    def _one(self, line: bytes, *, torn: bool) -> None:
        """One line that may hold anything; progress bars put several texts on it, each after a carriage return."""
        rows = _objects([line])
        if rows is not None:
            self._row(JSONL, rows[0])
            return
        found = False
        for part in line[:LONGEST_TEXT].decode("utf-8", errors="replace").strip("\0").split("\r"):
            text = _ESCAPES.sub("", part) if "\x1b" in part else part
            found |= self._table_line(text) or self._dictionary(text) or self._console(text, torn=torn)
        if found:
            return
        if torn:
            self._torn = True
        else:
            self._bad_count += 1
            if len(self._bad) < 3:
                self._bad.append(self._line)

    def _row(self, kind: str, row: Mapping[str, Any]) -> None:
        self._table.add(row)
        self._kinds[kind] += 1

    def _dictionary(self, text: str) -> bool:
        # JSON with a bare nan is read like a Python dictionary; what is torn has no end.
        begin, end = text.find("{'"), text.rfind("}")
        if text.startswith('{"') and text.count("{") == text.count("}"):
            begin = 0
        row = (
            {key: word or bare for key, word, bare in _ITEM.findall(text, begin, end)}
            if 0 <= begin < end
            else {}
        )
        if not any(number(value) is not None for value in row.values()):
            return False
        self._row(TRL, row)
        return True

    def _console(self, text: str, *, torn: bool) -> bool:
        step = _STEP.search(text)
        if step is None:
            return False
        pairs = dict(_pairs(text[step.end() :]))
        if not pairs:
            return False
        if torn and len(pairs) < self._width:
            self._torn = True
            return True
        verl = text[step.start() : step.end()].startswith("step:")
        self._width = len(pairs)
        decimals = [value for value in pairs.values() if "." in value]
        self.rounded = self.rounded and all(_THREE_DECIMALS.fullmatch(value) for value in decimals)
        self._row(VERL if verl else CONSOLE, {"step": step.group(1), **pairs})
        return True

    def _table_line(self, text: str) -> bool:
        """A line of a table `| name | value |` under `Train step n/m done`."""
        head = _TABLE_HEAD.search(text)
        if head is not None:
            self.flush()
            self._open_table = {"step": head.group(1)}
            self.last_step = int(head.group(2))
            return True
        if self._open_table is None or not _CELLS.search(text):
            return False
        cells = [cell.strip() for cell in _CELLS.split(text) if cell.strip()]
        found = {a: b for a, b in pairwise(cells) if number(a) is None and number(b) is not None}
        self._open_table |= found
        return bool(found)


def _objects(texts: list[bytes]) -> list[dict[str, Any]] | None:
    """The lines as JSON objects, None when any is none. One call for many lines is twice as fast as one a line."""
    try:
        rows = json.loads(b"[" + b",".join(texts) + b"]")
    except (ValueError, RecursionError):
        return None
    whole = len(rows) == len(texts) and all(type(row) is dict for row in rows)
    return rows if whole else None


def _pairs(text: str) -> list[tuple[str, str]]:
    """`key:value` and `key: value`, between dashes, bars, commas or wide gaps."""
    found = []
    for part in _BETWEEN.split(text):
        pair = _PAIR.match(part)
        if pair is not None and number(pair.group(2)) is not None:
            found.append((pair.group(1).strip(" :|-"), pair.group(2)))
    return found
