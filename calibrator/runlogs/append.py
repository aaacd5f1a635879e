"""Adding a judged run to RUNS.csv, the table that `calibrate fit` reads."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path

from filelock import FileLock

from calibrator.errors import LogError
from calibrator.laws.table import read_runs
from calibrator.laws.types import Run
from trainer.files import disk_errors, write_atomically

COLUMNS = (
    "run",
    "estimator",
    "sync_interval",
    "max_lag",
    "learning_rate",
    "seed",
    "updates",
    "verdict",
    "onset_low",
    "onset_high",
    "cumulative_lr",
    "cumulative_lr_onset_low",
    "cumulative_lr_onset_high",
)


def append_run(path: Path, run: Run) -> bool:
    """Add `run` as the last row; a table that is not there is made, columns that it lacks are added.

    Returns whether a row was added: one that is there already, cell by cell, is not repeated. The file is replaced as
    a whole, so that a kill leaves the old or the new table, and several commands may append at the same time.

    Raises:
        LogError: another run has this name.
        StudyConfigError: the file that is there is no table of runs.
    """
    if path.exists() and not path.is_file():
        raise LogError(f"{path} is no regular file; name a table to append to")
    path = Path(os.path.realpath(path))  # of a link, the table that it points to
    with disk_errors(path):
        if (
            _with(path, run) is None
        ):  # what is refused is refused here: the lock leaves a file beside the table
            return False
        with FileLock(path.with_name(f".{path.name}.lock")):
            text = _with(path, run)  # another command may have appended in between
            if text is not None:
                write_atomically(path, text)
            return text is not None


def _with(path: Path, run: Run) -> str | None:
    """The table with `run` as its last row; None where it is there already."""
    if not path.exists():
        return _text([*COLUMNS, *run.strata], [_cells(run)])
    if any(run == held for held in read_runs(path)):
        return None
    header, rows = _table(path)
    if any(row["run"] == run.run for row in rows):
        raise LogError(
            f"{path} has a run {run.run!r} already: pass --run with another name, or remove that row"
        )
    header += [name for name in (*COLUMNS, *run.strata) if name not in header]
    return _text(header, [*rows, _cells(run)])


def _table(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    reader = csv.reader(path.read_text(encoding="utf-8-sig").splitlines(), skipinitialspace=True)
    header = [name.strip() for name in next(reader)]
    rows = [[cell.strip() for cell in cells] for cells in reader if any(cell.strip() for cell in cells)]
    return header, [dict(zip(header, cells, strict=True)) for cells in rows]


def _cells(run: Run) -> dict[str, str]:
    content = run.model_dump(mode="json", exclude={"strata"})
    cells = {name: "" if value is None else _cell(value) for name, value in content.items()}
    return {**cells, **run.strata}


def _cell(value: object) -> str:
    if isinstance(value, float):
        return str(int(value)) if value == int(value) else repr(value)
    return str(value)


def _text(header: list[str], rows: list[dict[str, str]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, header, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
