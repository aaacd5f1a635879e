"""`calibrate status`."""

from __future__ import annotations

import shlex
from pathlib import Path

from rich.table import Table
from rich.text import Text

from calibrator.cli.console import AnswerConsole
from calibrator.cli.live import COLUMNS, curve_so_far, finished_row, running_row
from calibrator.study.results import CONFIG, load_result
from calibrator.study.store import StudyFolder, open_study
from reports.numbers import visible
from trainer.tasks import load_task


def print_status(root: Path) -> None:
    """Trials with their verdicts, updates spent, and whether there is a recommendation."""
    study, config = open_study(root)
    table = Table(title=Text(visible(str(root))), title_justify="left")
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in ("estimator", "verdict") else "right")
    spent, finished = 0, 0
    floor = load_task(config.task).reward_floor
    for folder in study.trials():
        if not (folder / CONFIG).exists():
            continue  # killed before it was made
        result = load_result(folder)
        curve = curve_so_far(folder)
        spent += curve.updates
        finished += result is not None
        table.add_row(*(finished_row(result) if result else running_row(folder, curve, floor)))
    console = AnswerConsole()
    console.print(table)
    limit = f" of {config.sweep.max_updates}" if config.sweep.max_updates else ""
    console.print(f"{finished} trials finished, {spent} updates made{limit}", highlight=False)
    console.print(visible(_next(study)), markup=False, highlight=False, soft_wrap=True)


def _next(study: StudyFolder) -> str:
    if study.recommendation.is_file():
        return f"recommendation: {study.recommendation}; next: calibrate train --from {shlex.quote(str(study.root))}"
    if study.is_locked():
        return "a calibrate command is working on this study"
    if study.fit.is_file():
        return f"no recommendation; {study.root / 'report.md'} says why and what to run next"
    return "no recommendation yet; next: the same `calibrate run` again"
