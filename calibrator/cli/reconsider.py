"""The answer of a finished study to another question: horizon, risk, rule, objective or schedule."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from calibrator.advice.types import Recommendation
from calibrator.cli.recommend import Wish, keep_previous, print_json
from calibrator.errors import ExitCode
from calibrator.handoff.conclude import Conclusion, Intent, conclude, confirmed, with_suggestion
from calibrator.study.config import StudyConfig, parse_config
from calibrator.study.results import TrialResult, load_results
from calibrator.study.store import StudyFolder, open_study, read_json
from calibrator.sweep.questions import (
    CONFIRM,
    CONFIRMATION_TRIES,
    confirmation,
    confirmation_stage,
    question_of,
)


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
        intent = wish.intent()
        config = _with_horizon(config, study, results, intent)
        conclusion = concluded(config, study, results, intent)
        _hand_over(config, study, results, conclusion, dry_run=dry_run, as_json=as_json)
    return ExitCode.RECOMMENDED if conclusion.recommendation else ExitCode.INCONCLUSIVE


def concluded(
    config: StudyConfig, study: StudyFolder, results: Sequence[TrialResult], intent: Intent
) -> Conclusion:
    """What `calibrate run` would say after these trials, without running any."""
    conclusion, fitted = settled(config, study, results, intent)
    return with_suggestion(config, fitted, conclusion, study)


def settled(
    config: StudyConfig,
    study: StudyFolder,
    results: Sequence[TrialResult],
    intent: Intent = Intent(),  # noqa: B008 (frozen)
) -> tuple[Conclusion, list[TrialResult]]:
    """The conclusion, without suggestions, and the trials that its fit rests on.

    Confirmations of other questions are runs like any other. Those of this question confirm it, or, where one of them
    collapsed, enter the fit.
    """
    question = question_of(config)
    fitted = [result for result in results if not result.stage.startswith(f"{CONFIRM}-{question}-")]
    conclusion = conclude(config, study, fitted, intent=intent)
    for attempt in range(1, CONFIRMATION_TRIES + 1):
        if (advice := conclusion.recommendation) is None or intent.schedule != "lockstep":
            break
        name = confirmation_stage(question, attempt, advice)
        done = [result for result in results if result.stage == name]
        if not done or len(done) < config.sweep.confirmations:
            break
        died = any(result.verdict.verdict.is_event for result in done)
        if not died:
            conclusion = replace(conclusion, recommendation=confirmed(advice, confirmation(done)))
            break
        fitted = [*fitted, *done]
        conclusion = conclude(config, study, fitted, confirmation(done), intent=intent)
    return conclusion, fitted


def _with_horizon(
    config: StudyConfig, study: StudyFolder, results: Sequence[TrialResult], intent: Intent
) -> StudyConfig:
    """[advice] with T in updates where the horizon was given in another unit: confirmations are known by it."""
    if intent.horizon is None:
        return config
    advice = conclude(config, study, results, intent=intent).recommendation
    if advice is None:
        return config
    content = config.model_dump()
    content["advice"]["horizon"] = advice.horizon
    return parse_config(StudyConfig, content, source=f"--horizon {intent.horizon.text}")


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
            _show(config, study, results, conclusion)
    else:
        # What makes reports and sweeps is loaded only where something is written.
        from calibrator.cli.run import write_answer
        from calibrator.sweep.rounds import SweepResult

        if differs(study, advice):
            keep_previous(study.root)
        spent = sum(result.verdict.updates for result in results)
        write_answer(
            config, study, results, SweepResult(conclusion, spent, budget_bound=False), quiet=as_json
        )
    if as_json:
        print_json(advice, conclusion.refusal, conclusion.stratum(config.trainer.estimator))


def _show(
    config: StudyConfig, study: StudyFolder, results: Sequence[TrialResult], conclusion: Conclusion
) -> None:
    from calibrator.cli.console import AnswerConsole
    from calibrator.cli.view import study_view
    from reports.terminal import render_terminal

    view = study_view(config, study, results, conclusion)
    if conclusion.recommendation is not None:  # nothing was written, so there is nothing yet to train from
        again = f"calibrate recommend {shlex.quote(str(study.root))}"
        view = replace(view, files=(), next_command=f"{again} ...  # without --dry-run")
    render_terminal(view, AnswerConsole())


def differs(study: StudyFolder, advice: Recommendation) -> bool:
    """Whether the study says something else at present."""
    return study.recommendation.is_file() and read_json(study.recommendation) != advice.model_dump(
        mode="json"
    )
