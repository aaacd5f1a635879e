"""The forms of a report, and where they go: files beside each other in the study, or the terminal."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Literal

from rich.console import Console

from calibrator.cli.console import AnswerConsole
from reports.view import StudyView
from trainer.files import disk_errors, write_atomically

Format = Literal["html", "markdown", "json", "terminal"]
FILE_WIDTH = 100
"""Columns of the terminal form in a file."""


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
    from reports.terminal import render_terminal

    stream = io.StringIO()
    render_terminal(view, Console(file=stream, width=FILE_WIDTH, color_system=None))
    return stream.getvalue()


def print_view(view: StudyView) -> None:
    """The terminal form on stdout."""
    from reports.terminal import render_terminal

    render_terminal(view, AnswerConsole())
