"""What a study says, delivered: its files, the answer on stdout, and the report in its forms."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from calibrator.cli.printing import escaped
from calibrator.cli.view import manifest, study_view
from calibrator.handoff.conclude import Conclusion, remember, study_cost
from calibrator.handoff.write import read_confirmation, write_conclusion
from calibrator.study.config import StudyConfig
from calibrator.study.results import TrialResult
from calibrator.study.store import StudyFolder, read_json, write_json
from reports.numbers import visible
from reports.view import StudyView
from trainer.errors import EnvironmentFailedError
from trainer.files import disk_errors, write_atomically

Format = Literal["html", "markdown", "json", "terminal"]
FILE_WIDTH = 100
"""Columns of the terminal form in a file."""
FIGURES = "figures"
"""Folder of those that report.md links to."""


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
    *,
    show: Callable[[StudyView], None] = print_view,
    keep: Callable[[], object] = lambda: None,
) -> None:
    """Settings, then the answer by `show`, then the reports, which take longest to make.

    All that may be refused is read before `keep` is called, which puts the answer before this one aside, and before
    anything is written: a refusal leaves the study as it was.
    """
    check_places(study)
    study_cost(config, study, results)
    recorded = manifest(config, results)
    view = study_view(config, study, results, conclusion, recorded)
    keep()
    write_conclusion(config, study, conclusion)
    _remember(config, study, results, conclusion)
    write_json(study.manifest, recorded)
    show(view)
    sys.stdout.flush()
    write_reports(view, study.root)


def check_places(study: StudyFolder) -> None:
    """Raise EnvironmentFailedError or CorruptStudyError where the answer of a study could not be written at its end.

    A folder stands in the place of a file or the other way round, or what is read again cannot be read.
    """
    files = [
        study.fit,
        study.recommendation,
        study.trainer_toml,
        study.manifest,
        study.cost,
        study.confirmation,
    ]
    for path in [*files, *(study.root / name for name in ("report.html", "report.md"))]:
        if path.exists() and not path.is_file():
            raise EnvironmentFailedError(
                f"{path} is no regular file, and one is to be written there; move it away"
            )
    figures = study.root / FIGURES
    if os.path.lexists(figures) and not figures.is_dir():
        raise EnvironmentFailedError(f"{figures} is no folder, and one is to be made there; move it away")
    read_confirmation(study)
    if study.recommendation.is_file():
        read_json(study.recommendation)


def _remember(
    config: StudyConfig, study: StudyFolder, results: Sequence[TrialResult], conclusion: Conclusion
) -> None:
    """Fill the cache. Without it the next answer takes longer, and is the same."""
    try:
        remember(config, study, results, conclusion)
    except (OSError, EnvironmentFailedError) as error:
        why = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
        print(visible(f"nothing was kept for a quicker next answer ({why})"), file=sys.stderr)


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

        return escaped(render_json(view))
    from rich.console import Console

    from reports.terminal import render_terminal

    stream = io.StringIO()
    render_terminal(view, Console(file=stream, width=FILE_WIDTH, color_system=None))
    return stream.getvalue()
