"""`calibrate compare`: two studies side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from calibrator.advice.compare import Comparison, Side, contrasts, differences, tally
from calibrator.cli.console import AnswerConsole
from calibrator.cli.printing import print_record
from calibrator.cli.question import StudyFit, fit_of
from calibrator.errors import StudyConfigError
from calibrator.handoff.write import read_recommendation
from calibrator.study.store import read_json

MADE_WITH = ("versions", "hardware", "commit")


def print_comparison(first: Path, second: Path, *, as_json: bool) -> None:
    """Compare the studies by the fits that their recommendations rest on, and print it."""
    if first.resolve() == second.resolve():
        raise StudyConfigError(f"{first} and {second} are the same study: give two")
    found = compared(fit_of(first), fit_of(second))
    if as_json:
        print_record(found)
        return
    from reports.cards.comparison import comparison_cards
    from reports.terminal import render_cards

    render_cards(f"{first} and {second}", comparison_cards(found), AnswerConsole())


def compared(first: StudyFit, second: StudyFit) -> Comparison:
    """The comparison of two fitted studies."""
    return Comparison(
        first=_side(first),
        second=_side(second),
        settings=differences(_settings(first), _settings(second)),
        made_with=differences(_made_with(first), _made_with(second)),
        contrasts=contrasts(first.stratum, second.stratum),
    )


def _side(fit: StudyFit) -> Side:
    boundary = fit.stratum.summary.boundary
    there = fit.study.recommendation.is_file()
    return Side(
        name=str(fit.study.root),
        estimator=fit.stratum.summary.estimator,
        verdicts=tally([result.verdict.verdict.value for result in fit.own]),
        runs_in_fit=fit.stratum.summary.runs,
        events=fit.stratum.summary.events,
        boundary=None if boundary is None else boundary.chosen,
        recommendation=read_recommendation(fit.study) if there else None,
        refusal=None if there else fit.conclusion.refusal,
    )


def _settings(fit: StudyFit) -> dict[str, Any]:
    """What trials depend on, the digests of what lies outside the study, and the question."""
    digests = read_json(fit.study.resolved).get("digests", {})
    named = {f"{name} (digest)": digests.get(name) for name in ("model", "task")}
    return {**fit.config.setting(), "advice": fit.config.advice.model_dump(mode="json"), **named}


def _made_with(fit: StudyFit) -> dict[str, Any]:
    manifest = read_json(fit.study.manifest) if fit.study.manifest.is_file() else {}
    code = read_json(fit.study.resolved).get("digests", {}).get("code")
    return {"code (digest)": code, **{key: manifest.get(key) for key in MADE_WITH}}
