"""`calibrate explain`: why a pair (S, eta) is safe or not, and which runs say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from calibrator.advice.explain import Explanation, Point, explain
from calibrator.cli.console import AnswerConsole
from calibrator.cli.inputs import gather
from calibrator.cli.printing import print_record
from calibrator.cli.question import fit_of
from calibrator.cli.recommend import chosen_stratum, selected
from calibrator.errors import ExitCode, StudyConfigError
from calibrator.laws.fit import fit_runs
from calibrator.study.store import is_study


@dataclass(frozen=True)
class Asked:
    """Options of the command."""

    sync_interval: int
    learning_rate: float
    horizon: int | None = None


def print_explanation(
    paths: Sequence[Path], asked: Asked, *, settings: Path | None, only: Sequence[str], as_json: bool
) -> ExitCode:
    """Explain the point and print it. INCONCLUSIVE where the runs identify no boundary."""
    if not 0 < asked.learning_rate <= 1e3:
        raise StudyConfigError(f"--learning-rate {asked.learning_rate:g}: give a rate above 0, at most 1000")
    if len(paths) == 1 and is_study(paths[0]):
        if only or settings is not None:
            raise StudyConfigError(
                "--only and --settings are for tables and logs; a study has its own settings"
            )
        found = explained_study(paths[0], asked)
    else:
        fitted = chosen_stratum(fit_runs(selected(gather(paths, settings), only)))
        found = explain(fitted, Point(asked.sync_interval, asked.learning_rate, asked.horizon))
    if as_json:
        print_record(found)
    else:
        _print_text(paths, found)
    return ExitCode.INCONCLUSIVE if found.standing == "unknown" else ExitCode.RECOMMENDED


def explained_study(root: Path, asked: Asked) -> Explanation:
    """The point by the fit that the study's recommendation rests on. Raises NothingToSayError without a run."""
    fit = fit_of(root, horizon=asked.horizon)
    advice, recommended = fit.config.advice, fit.conclusion.recommendation
    point = Point(
        sync_interval=asked.sync_interval,
        learning_rate=asked.learning_rate,
        horizon=advice.horizon,
        risk=advice.risk,
        rule=advice.rule,
        warmup=fit.config.trainer.warmup,
        schedule="lockstep" if fit.advice is None else fit.advice.schedule,
        swept=fit.config.sweep.sync_intervals,
        floor=None if recommended is None else recommended.floor_learning_rate,
    )
    return explain(fit.stratum, point, [result.run() for result in fit.later])


def _print_text(paths: Sequence[Path], found: Explanation) -> None:
    from reports.cards.explanation import explanation_cards
    from reports.terminal import render_cards

    title = f"S = {found.sync_interval}, eta = {found.learning_rate:g} by {', '.join(str(path) for path in paths)}"
    render_cards(title, explanation_cards(found), AnswerConsole())
