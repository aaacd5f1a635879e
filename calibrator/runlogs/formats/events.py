"""TensorBoard event files, through the tensorboard library."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from calibrator.errors import LogError
from calibrator.runlogs.formats.source import Source
from calibrator.runlogs.table import LogTable

MARK = "tfevents"
SIGNATURE = b"brain.Event:"


def event_files(folder: Path) -> list[Path]:
    """The event files directly in a folder, in the order in which they were begun."""
    return sorted(path for path in folder.iterdir() if MARK in path.name and path.is_file())


def read_events(files: list[Path], table: LogTable) -> Source:
    """Scalars of one run's event files; what was logged together at a step becomes one row. Raises LogError."""
    source = Source(table, form="tensorboard")
    for path in files:
        if not _fill(path, table):
            source.notes.append(f"{path.name} is torn or damaged; its events up to there are read.")
    if not table.rows:
        raise LogError(
            f"{files[0]}: no scalars could be read; is it a TensorBoard event file of a training run?"
        )
    return source


def _fill(path: Path, table: LogTable) -> bool:
    """Add the rows of one file; returns whether it could be read to its end."""
    row: dict[str, Any] = {}
    for event in _events(path):
        if event is None:
            table.add(row)
            return False
        for value in event.summary.value:
            scalar = _scalar(value)
            if scalar is None:
                continue
            # A row ends where the step changes, or where a tag comes back at the same step.
            if row and (row["step"] != event.step or value.tag in row):
                table.add(row)
                row = {}
            row["step"] = event.step
            row[value.tag] = scalar
    if row:
        table.add(row)
    return True


def _events(path: Path) -> Iterator[Any]:
    """The events of a file, then None if it broke off."""
    try:
        from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
    except ImportError:
        raise LogError(
            f"{path}: reading TensorBoard event files needs the tensorboard library: "
            "pip install 'grpo-calibrator[tensorboard]'"
        ) from None
    logging.getLogger("tensorboard").setLevel(logging.ERROR)
    try:
        yield from LegacyEventFileLoader(str(path)).Load()
    except Exception:  # the library's own errors, and protobuf's on bytes that are no events
        yield None


def _scalar(value: Any) -> float | None:
    if value.HasField("simple_value"):
        return float(value.simple_value)
    if not value.HasField("tensor"):
        return None
    from tensorboard.util import tensor_util

    try:
        array = tensor_util.make_ndarray(value.tensor)
        return float(array.reshape(-1)[0]) if array.size == 1 and array.dtype.kind in "fiu" else None
    except (TypeError, ValueError):
        return None
