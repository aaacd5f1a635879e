"""Logs that are tables of text: CSV and TSV, as spreadsheets and trackers export them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path

from calibrator.errors import LogError
from calibrator.runlogs.formats.source import Source, decode, line_blocks
from calibrator.runlogs.names import is_wanted
from calibrator.runlogs.table import LogTable, number

DELIMITERS = ",;\t"
BLOCK_ROWS = 4096
_DECIMAL_COMMA = re.compile(r"\s*[-+]?\d+,\d+(e[-+]?\d+)?\s*", re.IGNORECASE)


def delimiter_of(header: str) -> str | None:
    """What separates the cells of a header; None when nothing does, or its cells are numbers."""
    found = max(DELIMITERS, key=header.count)
    cells = header.split(found)
    named = len(cells) > 1 and all(number(cell.strip(' "')) is None for cell in cells if cell.strip(' "'))
    return found if named else None


def looks_like_csv(head: str) -> bool:
    """Whether the first two lines are a header and a row that fits it, and some name is known."""
    lines = [line for line in head.splitlines()[:20] if line.strip()]
    if len(lines) < 2 or lines[0].lstrip().startswith(("{", "[")):
        return False
    mark = delimiter_of(lines[0])
    if mark is None:
        return False
    names, cells = next(csv.reader([lines[0]], delimiter=mark)), next(csv.reader([lines[1]], delimiter=mark))
    fits = len(names) == len(cells) and any(number(cell) is not None for cell in cells)
    return fits and any(map(is_wanted, names))


def read_csv(path: Path, table: LogTable) -> Source:
    """Rows of a table with a header. Raises LogError."""
    source = Source(table, form="csv", nan_may_be_a_gap=True)
    try:
        wrong = _fill(path, table)
    except csv.Error as error:
        raise LogError(f"{path} is no readable CSV: {error}") from None
    if wrong:
        source.notes.append(f"{wrong} lines have another number of cells than the header; they are left out.")
    return source


def _fill(path: Path, table: LogTable) -> int:
    """Add all rows; returns how many lines were left out."""
    lines = _texts(path)
    header = next((line for line in lines if line.strip()), "")
    mark = delimiter_of(header)
    if mark is None:
        raise LogError(f"{path}: the first line of a CSV must name its columns, at least a step and a reward")
    names = [name.strip() for name in next(csv.reader([header], delimiter=mark))]
    wrong, rows, block = 0, 0, []
    for cells in csv.reader(lines, delimiter=mark):
        if len(cells) == len(names):
            if not rows and mark != "," and any(map(_DECIMAL_COMMA.fullmatch, cells)):
                raise LogError(
                    f"{path}: numbers have decimal commas ({';'.join(cells)[:80]}); write them with points"
                )
            rows += 1
            block.append(dict(zip(names, cells, strict=True)))
            if len(block) == BLOCK_ROWS:
                table.add_all(block)
                block = []
        elif any(cell.strip() for cell in cells):
            wrong += 1
    table.add_all(block)
    if wrong and not rows:
        raise LogError(
            f"{path}: the header has {len(names)} cells between `{mark}`, and no line has as many: has it decimal "
            "commas, or other separators than its header?"
        )
    return wrong


def _texts(path: Path) -> Iterator[str]:
    for lines, _ in line_blocks(path):
        yield from io.StringIO(decode(b"\n".join(lines)).replace("\0", ""), newline=None)
