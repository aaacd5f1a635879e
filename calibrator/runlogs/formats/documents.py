"""Logs that are one JSON document: TRL's trainer_state.json, and arrays of rows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from calibrator.errors import LogError
from calibrator.runlogs.formats.source import Source, read_whole
from calibrator.runlogs.table import LogTable

HISTORY = "log_history"
_GAP = re.compile(r"[\s,]*")
_MAX_STEPS = re.compile(r'"max_steps"\s*:\s*(\d{1,12})\b')


def read_document(path: Path, table: LogTable) -> Source:
    """Rows of a document, one at a time, so that one which was torn off gives those before. Raises LogError."""
    text = read_whole(path)
    state = re.search(rf'"{HISTORY}"\s*:\s*\[', text)
    start = state.end() if state else len(text) - len(text.lstrip()) + 1
    if state is None and not text.lstrip().startswith("["):
        raise LogError(
            f"{path} is a JSON document without `{HISTORY}`; give JSON lines, an array of rows, or trainer_state.json"
        )
    whole = True
    for row in _rows(text, start):
        if row is None:
            whole = False
        elif isinstance(row, dict):
            table.add(row)
    source = Source(table, form="trl" if state else "json")
    if not whole:
        source.notes.append("The file is torn; its rows up to there are read.")
    planned = _MAX_STEPS.search(text) if state else None
    source.last_step = int(planned.group(1)) or None if planned else None
    return source


def _rows(text: str, start: int) -> Iterator[Any]:
    """The elements of the array that begins at `start`; None at the end when it is not closed."""
    decoder = json.JSONDecoder()
    at = start
    while True:
        gap = _GAP.match(text, at)
        at = gap.end() if gap else at
        if text.startswith("]", at):
            return
        try:
            row, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            yield None
            return
        yield row
