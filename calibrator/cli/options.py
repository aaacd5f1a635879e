"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from calibrator.advice.horizon import MOST_UPDATES

StudyFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="[STUDY.toml]", help="Study file; without it the embedded default.", show_default=False
    ),
]
Study = Annotated[Path, typer.Argument(metavar="STUDY", help="Study folder.")]
Folder = Annotated[
    Path | None,
    typer.Option("--folder", help="Study folder, instead of output.folder.", show_default=False),
]
MaxUpdates = Annotated[
    int | None,
    typer.Option(
        "--max-updates",
        min=1,
        help="Most updates of the whole study; exit 4 when it binds.",
        show_default=False,
    ),
]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Trials at a time.", show_default=False)
]
Sources = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUNS.csv|STUDY|LOG...",
        help="Tables of judged runs, a study folder, or logs of any framework; they may be mixed.",
    ),
]
LogFields = Annotated[
    Path | None,
    typer.Option(
        "--settings",
        metavar="FILE.json",
        help="Name of each log, with the fields of `calibrate judge` for it.",
        show_default=False,
    ),
]
Horizon = Annotated[
    int | None,
    typer.Option(
        "--horizon",
        min=1,
        max=MOST_UPDATES,
        help="T: updates of the run that you intend.",
        show_default=False,
    ),
]
Objective = Literal["time", "progress"]
Rule = Literal["stable", "conservative", "budget-limited"]
Risk = Annotated[float, typer.Option("--risk", help="Accepted probability of a collapse, below 0.5.")]
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        metavar="KEY=VALUE",
        help="Only runs of a table or logs with this setting (estimator=gmc, or a column); may be repeated.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
