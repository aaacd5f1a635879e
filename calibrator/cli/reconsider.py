"""The answer of a finished study to another question: horizon, risk, rule, objective or schedule."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from calibrator.advice.types import Recommendation
from calibrator.cli.delivery import print_view, write_answer
from calibrator.cli.recommend import Wish, keep_previous, print_json
from calibrator.cli.view import study_view
from calibrator.errors import ExitCode
from calibrator.handoff.conclude import Conclusion, Intent, conclude, with_suggestion
from calibrator.study.config import StudyConfig, parse_config
from calibrator.study.results import TrialResult, load_results
from calibrator.study.store import StudyFolder, open_study, read_json
from calibrator.sweep.answer import answer
from reports.view import StudyView


def reconsider(root: Path, wish: Wish, *, dry_run: bool, as_json: bool) -> ExitCode:
    """Conclude anew from the finished trials in `root`; write it as `calibrate run` does, unless `dry_run`.

    What the study said before is kept in previous/<n>/ when the recommendation changes.
    """
    study, made = open_study(root)
    content = made.model_dump()
    content["advice"] |= wish.advice()
    config = parse_config(StudyConfig, content, source="options of calibrate recommend")
    with nullcontext() if dry_run else study.locked():
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
    return with_suggestion(config, study, fitted, conclusion)


def settled(
    config: StudyConfig,
    study: StudyFolder,
    results: Sequence[TrialResult],
    intent: Intent = Intent(),  # noqa: B008 (frozen)
) -> tuple[Conclusion, list[TrialResult]]:
    """The answer from the trials that exist, without suggestions, and those that its fit rests on."""

    def made(name: str, _: Recommendation) -> list[TrialResult]:
        return [result for result in results if result.stage == name]

    return answer(config, study, results, made, intent)


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

    def show_json(_: StudyView | None = None) -> None:
        print_json(advice, conclusion.refusal, conclusion.stratum(config.trainer.estimator))

    if advice is None or dry_run:
        if as_json:
            show_json()
        else:
            print_view(_not_written(study_view(config, study, results, conclusion)))
        return
    write_answer(
        config,
        study,
        results,
        conclusion,
        show=show_json if as_json else print_view,
        keep=lambda: differs(study, advice) and keep_previous(study.root),
    )


def _not_written(view: StudyView) -> StudyView:
    """Nothing was written, so there is nothing yet to train from."""
    if view.recommendation is None:
        return view
    again = f"calibrate recommend {shlex.quote(view.folder)}"
    return replace(view, files=(), next_command=f"{again} ...  # without --dry-run")


def differs(study: StudyFolder, advice: Recommendation) -> bool:
    """Whether the study says something else at present."""
    return study.recommendation.is_file() and read_json(study.recommendation) != advice.model_dump(
        mode="json"
    )
