"""What a study says, delivered: its files, the answer on stdout, and the report in its forms."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from calibrator.cli.view import manifest, study_view
from calibrator.handoff.conclude import Conclusion, remember, study_cost
from calibrator.handoff.write import write_conclusion
from calibrator.study.config import StudyConfig
from calibrator.study.results import TrialResult
from calibrator.study.store import StudyFolder, write_json
from reports.view import StudyView
from trainer.files import disk_errors, write_atomically

Format = Literal["html", "markdown", "json", "terminal"]
FILE_WIDTH = 100
"""Columns of the terminal form in a file."""


def print_view(view: StudyView) -> None:
    """The terminal form on stdout."""
    from calibrator.cli.console import AnswerConsole
    from reports.terminal import render_terminal

    render_terminal(view, AnswerConsole())


def write_answer(
    config: StudyConfig,
    study: StudyFolder,
    results: Sequence[TrialResult],
    conclusion: Conclusion,
    show: Callable[[StudyView], None] = print_view,
) -> None:
    """Settings, then the answer by `show`, then the reports, which take longest to make."""
    study_cost(config, study, results)
    write_conclusion(config, study, conclusion)
    remember(config, study, results, conclusion)
    write_json(study.manifest, manifest(config, results))
    view = study_view(config, study, results, conclusion)
    show(view)
    sys.stdout.flush()
    write_reports(view, study.root)


def write_reports(view: StudyView, root: Path) -> None:
    """report.html, report.md and the figures in the study's folder."""
    write_form(view, "html", root / "report.html")
    write_form(view, "markdown", root / "report.md")


def write_form(view: StudyView, form: Format, path: Path) -> None:
    """Write one form; the figures that Markdown links to go beside it."""
    from reports.figures import figure_files

    content = text(view, form)
    with disk_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
        if form != "markdown":
            return
        for name, svg in figure_files(view).items():
            (path.parent / name).parent.mkdir(exist_ok=True)
            write_atomically(path.parent / name, svg)


def text(view: StudyView, form: Format) -> str:
    """One form as text; the terminal one without colours."""
    if form == "html":
        from reports.html import render_html

        return render_html(view)
    if form == "markdown":
        from reports.markdown import render_markdown

        return render_markdown(view)
    if form == "json":
        from reports.document import render_json

        return render_json(view)
    from rich.console import Console

    from reports.terminal import render_terminal

    stream = io.StringIO()
    render_terminal(view, Console(file=stream, width=FILE_WIDTH, color_system=None))
    return stream.getvalue()
