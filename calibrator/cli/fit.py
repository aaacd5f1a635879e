"""`calibrate fit`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from calibrator.advice.outlook import outlook
from calibrator.advice.types import Rule
from calibrator.cli.console import AnswerConsole
from calibrator.cli.inputs import gather
from calibrator.cli.printing import print_record
from calibrator.cli.recommend import selected
from calibrator.errors import ExitCode, StudyConfigError
from calibrator.laws.fit import fit_runs
from calibrator.laws.types import FitResult, Run


@dataclass(frozen=True)
class Question:
    """The run that is intended, as far as it is known."""

    horizon: int | None
    """T, in updates."""
    risk: float
    rule: Rule


def print_fit(
    paths: Sequence[Path], question: Question, *, settings: Path | None, only: Sequence[str], as_json: bool
) -> ExitCode:
    """Fit the laws to the runs in `paths` and print them. INCONCLUSIVE when no stratum has a boundary."""
    if not 0 < question.risk < 0.5:
        raise StudyConfigError(f"--risk {question.risk:g}: give a probability above 0 and below 0.5")
    if question.rule != "stable" and question.horizon is None:
        raise StudyConfigError(f"--rule {question.rule} depends on the length of the run: give --horizon")
    fit = fitted(selected(gather(paths, settings), only), question)
    if as_json:
        print_record(fit)
    else:
        from reports.cards.fit import fit_cards
        from reports.terminal import render_cards

        title = f"Laws of collapse from {', '.join(str(path) for path in paths)}"
        render_cards(title, fit_cards(fit), AnswerConsole())
    known = any(stratum.boundary is not None for stratum in fit.strata)
    return ExitCode.RECOMMENDED if known else ExitCode.INCONCLUSIVE


def fitted(runs: Sequence[Run], question: Question) -> FitResult:
    """The fit of each stratum, with its outlook on the intended run."""
    strata = []
    for stratum in fit_runs(runs):
        ahead = outlook(stratum, horizon=question.horizon, risk=question.risk, rule=question.rule)
        strata.append(stratum.summary.model_copy(update={"outlook": ahead}))
    return FitResult(strata=strata)
