"""The answer to one question of a study: what its runs recommend, until runs at the recommended numbers survive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from calibrator.advice.types import Recommendation
from calibrator.handoff.conclude import Conclusion, Intent, attach, conclude
from calibrator.laws.observations import is_event
from calibrator.study.config import StudyConfig
from calibrator.study.results import TrialResult
from calibrator.study.store import StudyFolder
from calibrator.sweep.questions import (
    CONFIRMATION_TRIES,
    confirmation,
    confirmation_stage,
    is_confirmation,
    question_of,
)

RunsAt: TypeAlias = Callable[[str, Recommendation], Sequence[TrialResult]]
"""The finished runs of a stage that confirms a recommendation: found among those that exist, or made now."""


def answer(
    config: StudyConfig,
    study: StudyFolder,
    results: Sequence[TrialResult],
    runs_at: RunsAt,
    intent: Intent = Intent(),  # noqa: B008 (frozen)
) -> tuple[Conclusion, list[TrialResult]]:
    """The conclusion from `results`, without suggestions, and the trials that its fit rests on.

    Runs that confirm this answer come after it and are no part of the fit, unless one of them collapsed: then they
    enter it, the recommendation becomes a lower one, and that is confirmed in turn. Confirmations of other questions
    are runs like any other.
    """
    question = question_of(config)
    fitted = [result for result in results if not is_confirmation(question, result.stage)]
    conclusion = conclude(config, study, fitted, intent=intent)
    for attempt in range(1, CONFIRMATION_TRIES + 1):
        if (advice := conclusion.recommendation) is None or intent.schedule != "lockstep":
            break
        done = runs_at(confirmation_stage(question, attempt, advice), advice)
        if not done or len(done) < config.sweep.confirmations:
            break
        if not any(is_event(result.run()) for result in done):
            return attach(conclusion, confirmation(done)), fitted
        fitted = [*fitted, *done]
        conclusion = attach(conclude(config, study, fitted, intent=intent), confirmation(done))
    return conclusion, fitted
