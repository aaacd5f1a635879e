"""The runs that `fit` and `recommend` work on: tables of runs, a study folder, or logs of any framework."""

from __future__ import annotations

import csv
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calibrator.errors import StudyConfigError
from calibrator.laws.table import REQUIRED, read_runs
from calibrator.laws.types import Run
from calibrator.runlogs.settings import LogSettings, read_fields, settings_of
from calibrator.study.store import is_study
from reports.numbers import visible

TABLE_COLUMNS = 3
"""Columns of RUNS.csv in a header from which a CSV file is one, if perhaps an incomplete one, and no log."""


def gather(paths: Sequence[Path], settings: Path | None) -> list[Run]:
    """Runs of all sources, in their order.

    `settings` is a JSON file that maps names of logs to the fields of `calibrate judge`.

    Raises StudyConfigError, LogError or CorruptStudyError naming the source.
    """
    logs = [path for path in paths if not is_study(path) and not is_table(path)]
    fields = _fields_by_log(logs, settings)
    runs: list[Run] = []
    for path in paths:
        runs += _log(path, fields[path]) if path in fields else _finished(path)
    _refuse_repeats(runs)
    return runs


def is_table(path: Path) -> bool:
    """Whether `path` is a CSV file with the columns of RUNS.csv."""
    if path.suffix.lower() != ".csv" or not path.is_file():
        return False
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        try:
            header = next(csv.reader([file.readline(10_000)]), [])
        except csv.Error:
            return False
    return sum(name.strip() in REQUIRED for name in header) >= TABLE_COLUMNS


def _finished(path: Path) -> list[Run]:
    if not is_study(path):
        return read_runs(path)
    from calibrator.study.results import load_results
    from calibrator.study.store import open_study

    study, _ = open_study(path)
    return [result.run() for result in load_results(study)]


def _log(path: Path, settings: LogSettings) -> list[Run]:
    """Judge a log, and say on stderr what it was taken for: S and the framework may have been guessed."""
    from calibrator.runlogs.judged import judge_log

    judged = judge_log(path, settings)
    run = judged.run()
    said = f"{judged.log.framework}, S = {run.sync_interval}, largest lag {run.max_lag}, {run.verdict}"
    for line in (said, *judged.verdict.warnings):
        print(visible(f"{path}: {line}"), file=sys.stderr)
    return [run]


def _fields_by_log(logs: Sequence[Path], settings: Path | None) -> dict[Path, LogSettings]:
    """Settings of each log. A key is its path as given, folder/name, name or folder; the most exact one wins."""
    given: Mapping[str, Any] = {} if settings is None else read_fields(settings)
    used: set[str] = set()
    found = {}
    for log in logs:
        names = [log.parent.name, log.stem, log.name, f"{log.parent.name}/{log.name}", str(log)]
        fields: dict[str, Any] = {}
        for name in dict.fromkeys(names):
            if name in given:
                used.add(name)
                fields |= _object(given[name], name, settings)
        found[log] = settings_of(fields, source=f"{settings}, {log}")
    if unused := [name for name in given if name not in used]:
        raise StudyConfigError(
            f"{settings}: {', '.join(unused)} names none of the logs; a key is a log's name or path, its value an "
            "object with the fields of `calibrate judge`"
        )
    return found


def _object(value: Any, name: str, settings: Path | None) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise StudyConfigError(f"{settings}: {name} holds no object with the fields of `calibrate judge`")
    return value


def _refuse_repeats(runs: Sequence[Run]) -> None:
    seen = Counter((run.run, run.estimator, tuple(sorted(run.strata.items()))) for run in runs)
    (key, times), *_ = seen.most_common(1) or [(("", "", ()), 0)]
    if times > 1:
        raise StudyConfigError(
            f"run {key[0]!r} is there {times} times; give each run its own name, and each file once"
        )
