"""What is asked of a study, and the stages whose runs answer it: names that sweep and advice share."""

from __future__ import annotations

from collections.abc import Sequence

from calibrator.advice.types import Confirmation, Recommendation
from calibrator.study.config import StudyConfig
from calibrator.study.results import TrialResult
from trainer.config import digest

CONFIRM = "confirm"
CONFIRMATION_TRIES = 2
"""A confirmation that collapses lowers the recommendation, which is then confirmed once more."""


def question_of(config: StudyConfig) -> str:
    """Digest of what is asked of the study: confirmations belong to the question that they answered."""
    return digest([config.advice.model_dump(mode="json"), config.sweep.sharp_enough])[:8]


def is_confirmation(question: str, stage: str) -> bool:
    """Whether the runs of this stage confirm an answer to this question."""
    return stage.startswith(f"{CONFIRM}-{question}-")


def confirmation_stage(question: str, attempt: int, advice: Recommendation) -> str:
    """Name of the stage that confirms a recommendation."""
    numbers = f"S{advice.sync_interval}-eta{advice.learning_rate!r}-T{advice.horizon}"
    return f"{CONFIRM}-{question}-{attempt}-{numbers}"


def confirmation(done: Sequence[TrialResult]) -> Confirmation:
    """Summary of the runs at the recommended numbers."""
    return Confirmation(
        trials=[result.number for result in done],
        sync_interval=done[0].config.sync_interval,
        verdicts=[result.verdict.verdict.value for result in done],
        learning_rate=done[0].config.learning_rate,
        updates=done[0].config.updates,
        cumulative_lr=min(result.verdict.cumulative_lr_total or 0.0 for result in done),
        held_out_before=done[0].summary.held_out_before or 0.0,
        held_out_after=[result.summary.held_out_after for result in done],
    )
