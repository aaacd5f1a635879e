"""Which format a log has, by its content first and its name second."""

from __future__ import annotations

from pathlib import Path

from calibrator.errors import LogError
from calibrator.runlogs.formats import documents, events, tables
from calibrator.runlogs.formats.lines import read_lines
from calibrator.runlogs.formats.source import Source, decode
from calibrator.runlogs.table import LogTable

HEAD = 1 << 16
IN_FOLDERS = ("trainer_state.json", "metrics.jsonl")
"""Logs that are found when the folder that holds them is named."""


def open_log(path: Path, table: LogTable, framework: str | None) -> Source:
    """Read the rows of a log into `table`. Raises LogError when nothing there can be a log."""
    try:
        if path.is_dir():
            return _read_folder(path, table)
        if not path.exists():
            raise LogError(f"{path}: no such file or folder")
        if not path.is_file():
            raise LogError(f"{path} is no regular file; copy what it gives to a file and name that")
        return _read_file(path, table, framework)
    except OSError as error:
        raise LogError(f"{path} cannot be read: {error.strerror or error}") from error


def _read_file(path: Path, table: LogTable, framework: str | None) -> Source:
    with path.open("rb") as file:
        head = file.read(HEAD)
    if not head.strip(b"\0 \t\r\n"):
        raise LogError(f"{path} is empty: a log of a run has one row for each step")
    if framework == "tensorboard" or events.MARK in path.name or events.SIGNATURE in head[:128]:
        return events.read_events([path], table)
    text = decode(head).lstrip()
    if _is_document(text):
        return documents.read_document(path, table)
    tabular = not text.startswith(("{", "[")) and (
        framework == "csv" or path.suffix.lower() in (".csv", ".tsv")
    )
    if tabular or tables.looks_like_csv(text):
        return tables.read_csv(path, table)
    return read_lines(path, table)


def _is_document(head: str) -> bool:
    if head.startswith("["):
        return head[1:].lstrip().startswith("{")
    first = head.split("\n", 1)[0].strip()
    return head.startswith("{") and (f'"{documents.HISTORY}"' in head or first == "{")


def _read_folder(folder: Path, table: LogTable) -> Source:
    files = events.event_files(folder)
    if files:
        return events.read_events(files, table)
    logs = [folder / name for name in IN_FOLDERS if (folder / name).is_file()]
    below = sorted({path.parent for path in folder.glob(f"*/*{events.MARK}*")})
    if len(logs) == 1:
        return _read_file(logs[0], table, None)
    if len(below) == 1 and not logs:
        return events.read_events(events.event_files(below[0]), table)
    found = [str(path) for path in (*logs, *below)][:5]
    if not found:
        raise LogError(
            f"{folder} holds no log that is known: name the file, or a folder of TensorBoard event files"
        )
    raise LogError(f"{folder} holds several logs: name one of {', '.join(found)}")
