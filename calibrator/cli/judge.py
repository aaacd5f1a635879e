"""`calibrate judge`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibrator.cli.printing import print_record
from calibrator.runlogs.append import append_run
from calibrator.runlogs.judged import JudgedLog, judge_log
from calibrator.runlogs.settings import read_fields, settings_of
from reports.numbers import count, listing, name, rate, span, visible

DASH = "-"


def judge_and_print(
    path: Path, *, settings: Path | None, options: Mapping[str, Any], append: Path | None, as_json: bool
) -> None:
    """Judge a log, print the verdict, and add the run to a table if asked. Raises LogError.

    `options` by the fields of LogSettings; None where not given; they win over the settings file.
    """
    given = {key: value for key, value in options.items() if value is not None}
    fields = read_fields(settings) if settings is not None else {}
    source = listing([*([str(settings)] if settings else []), *(["the options"] if given else [])])
    judged = judge_log(path, settings_of({**fields, **given}, source=source))
    if as_json:
        print_record(judged.verdict)
    else:
        print("\n".join(visible(line) for line in lines_of(judged)))
    if append is not None:
        added = append_run(append, judged.run())
        state = "added to" if added else "is already in"
        print(f"run {name(judged.name)} {state} {visible(str(append))}", file=sys.stderr)


def lines_of(judged: JudgedLog) -> list[str]:
    """The verdict as a colleague would say it."""
    verdict, log = judged.verdict, judged.log
    S = log.judge.sync_interval
    lines = [f"{verdict.verdict.value}: {judged.path}, {count(verdict.updates)} updates", ""]
    if verdict.onset_updates is not None:
        lines.append(f"onset               {span(verdict.onset_updates, _places)} updates")
        lines.append(f"L at onset          {span(verdict.cumulative_lr_at_onset, rate)}")
    total = verdict.cumulative_lr_total
    lines.append(f"L of the whole run  {DASH if total is None else rate(total)}")
    lines.append(f"reward              {log.reward_column}, floor {log.judge.reward_floor:g}")
    lines.append(f"sync interval       S = {S}, largest lag {judged.max_lag}: S_eff = {1 + judged.max_lag}")
    lines += ["", *(f"- {item.sentence}" for item in verdict.evidence)]
    if verdict.warnings:
        lines += ["", *(f"! {warning}" for warning in verdict.warnings)]
    return lines


def _places(x: float) -> str:
    return f"{x:,.6g}"
