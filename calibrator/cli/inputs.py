"""The runs that `fit` and `recommend` work on: tables of runs, a study folder, or logs of any framework."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from calibrator.errors import StudyConfigError
from calibrator.laws.table import REQUIRED, read_runs
from calibrator.laws.types import Run
from calibrator.runlogs.settings import LogSettings, read_fields, settings_of
from calibrator.study.store import is_study
from calibrator.wording import plural
from reports.numbers import visible

TABLE_COLUMNS = 3
"""Columns of RUNS.csv in a header from which a CSV file is one, if perhaps an incomplete one, and no log."""
MOST_HEADER = 10_000
"""Bytes in which the header of a table ends."""
MANY_SETTINGS = 0.5
"""Share of the runs from which as many settings are worth a word."""
MOST_NAMED = 5
"""Names that a message lists."""


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
    for line in _own_settings(runs):
        print(visible(line), file=sys.stderr)
    return runs


def _own_settings(runs: Sequence[Run]) -> Iterator[str]:
    """A hint for each column that differs in most runs: a remark, not a setting, and it keeps all of them apart."""
    for column in dict.fromkeys(name for run in runs for name in run.strata):
        values = {run.strata.get(column) for run in runs}
        if len(runs) > MOST_NAMED and len(values) > MANY_SETTINGS * len(runs):
            yield (
                f"column {column!r} has {len(values)} different values in {len(runs)} runs: runs that differ in a "
                "setting are never pooled; remove the column if it is none"
            )


def is_table(path: Path) -> bool:
    """Whether `path` is a CSV file with the columns of RUNS.csv."""
    if path.suffix.lower() != ".csv" or not path.is_file():
        return False
    with path.open("rb") as file:
        start = file.read(MOST_HEADER)
    # Any separator and encoding here: the reader of tables says what is wrong with them.
    header = start.replace(b"\0", b"").decode("utf-8", errors="replace").splitlines()[:1]
    names = {name.strip('\ufeff\ufffd "') for line in header for name in re.split(r"[,;\t|]", line)}
    return len(names & set(REQUIRED)) >= TABLE_COLUMNS


def _finished(path: Path) -> list[Run]:
    if not is_study(path):
        return read_runs(path)
    from calibrator.study.results import load_results
    from calibrator.study.store import open_study

    study, _ = open_study(path)
    results = load_results(study)
    if checks := sum(result.is_check for result in results):
        said = f"{path}: `calibrate confirm` made {checks} of its {plural(len(results), 'run')}"
        print(visible(said), file=sys.stderr)
    return [result.run() for result in results]


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
        names = [log.parent.name, log.stem, log.name, f"{log.parent.name}/{log.name}"]
        names += [name for name in given if os.sep in name and Path(name).absolute() == log.absolute()]
        fields: dict[str, Any] = {}
        for name in dict.fromkeys(names):
            if name in given:
                used.add(name)
                fields |= _object(given[name], name, settings)
        found[log] = settings_of(fields, source=f"{settings}, {log}")
    if unused := [name for name in given if name not in used]:
        more = f" and {len(unused) - MOST_NAMED} more" if len(unused) > MOST_NAMED else ""
        raise StudyConfigError(
            f"{settings}: none of the logs is named {', '.join(unused[:MOST_NAMED])}{more}; a key is a log's name or "
            "path, its value an object with the fields of `calibrate judge`"
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
