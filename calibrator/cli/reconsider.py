"""The answer of a finished study to another question: horizon, risk, rule, objective or schedule."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from calibrator.advice.types import Recommendation
from calibrator.cli.console import AnswerConsole
from calibrator.cli.recommend import Wish, keep_previous, print_json
from calibrator.cli.run import write_answer
from calibrator.cli.view import study_view
from calibrator.errors import ExitCode
from calibrator.handoff.conclude import Conclusion, conclude, with_suggestion
from calibrator.laws.observations import is_event
from calibrator.study.config import StudyConfig, parse_config
from calibrator.study.results import TrialResult, load_results
from calibrator.study.store import StudyFolder, open_study, read_json
from calibrator.sweep.rounds import (
    CONFIRM,
    CONFIRMATION_TRIES,
    SweepResult,
    confirmation,
    confirmation_stage,
    question_of,
)
from reports.terminal import render_terminal
from trainer.names import ScheduleName


def reconsider(root: Path, wish: Wish, *, dry_run: bool, as_json: bool) -> ExitCode:
    """Conclude anew from the finished trials in `root`; write it as `calibrate run` does, unless `dry_run`.

    What the study said before is kept in previous/<n>/ when the recommendation changes.
    """
    study, made = open_study(root)
    content = made.model_dump()
    content["advice"] |= wish.advice()
    config = parse_config(StudyConfig, content, source="options of calibrate recommend")
    with study.locked():
        results = load_results(study)
        conclusion = concluded(config, study, results, wish.schedule or "lockstep", wish.max_lag)
        _hand_over(config, study, results, conclusion, dry_run=dry_run, as_json=as_json)
    return ExitCode.RECOMMENDED if conclusion.recommendation else ExitCode.INCONCLUSIVE


def concluded(
    config: StudyConfig,
    study: StudyFolder,
    results: Sequence[TrialResult],
    schedule: ScheduleName,
    max_lag: int | None,
) -> Conclusion:
    """What `calibrate run` would say after these trials, without running any."""
    conclusion, fitted = settled(config, study, results, schedule, max_lag)
    return with_suggestion(config, fitted, conclusion)


def settled(
    config: StudyConfig,
    study: StudyFolder,
    results: Sequence[TrialResult],
    schedule: ScheduleName = "lockstep",
    max_lag: int | None = None,
) -> tuple[Conclusion, list[TrialResult]]:
    """The conclusion, without suggestions, and the trials that its fit rests on.

    Confirmations of other questions are runs like any other. Those of this question confirm it, or, where one of them
    collapsed, enter the fit.
    """
    question = question_of(config)
    fitted = [result for result in results if not result.stage.startswith(f"{CONFIRM}-{question}-")]
    conclusion = conclude(config, study, fitted, schedule=schedule, max_lag=max_lag)
    for attempt in range(1, CONFIRMATION_TRIES + 1):
        if (advice := conclusion.recommendation) is None or schedule != "lockstep":
            break
        name = confirmation_stage(question, attempt, advice)
        done = [result for result in results if result.stage == name]
        if not done or len(done) < config.sweep.confirmations:
            break
        died = any(is_event(result.run()) for result in done)
        fitted = [*fitted, *done] if died else fitted
        conclusion = conclude(config, study, fitted, confirmation(done), schedule=schedule, max_lag=max_lag)
        if not died:
            break
    return conclusion, fitted


def _hand_over(
    config: StudyConfig,
    study: StudyFolder,
    results: Sequence[TrialResult],
    conclusion: Conclusion,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Write and print. Where nothing can be recommended, what the study said before stays."""
    advice = conclusion.recommendation
    if dry_run or advice is None:
        if not as_json:
            render_terminal(study_view(config, study, results, conclusion), AnswerConsole())
    else:
        if _differs(study, advice):
            keep_previous(study.root)
        spent = sum(result.verdict.updates for result in results)
        write_answer(
            config, study, results, SweepResult(conclusion, spent, budget_bound=False), quiet=as_json
        )
    if as_json:
        print_json(advice, conclusion.refusal)


def _differs(study: StudyFolder, advice: Recommendation) -> bool:
    return study.recommendation.is_file() and read_json(study.recommendation) != advice.model_dump(
        mode="json"
    )
