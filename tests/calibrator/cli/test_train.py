"""Overrides and warnings of the hand-over; training itself is in test_run.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from calibrator.advice.types import Recommendation
from calibrator.cli.train import Overrides, apply, warnings
from calibrator.errors import StudyConfigError
from trainer.config import RunConfig

Advice = Callable[..., Recommendation]
DIGESTS = {"model": "m", "task": "t", "code": "c"}
RUN = RunConfig(sync_interval=4, learning_rate=1e-3, updates=400)


def test_the_recommended_run_needs_no_warning(advice: Advice) -> None:
    assert warnings(advice(), RUN, RUN, DIGESTS) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (Overrides(learning_rate=2e-3), "above the 0.001"),
        (Overrides(sync_interval=32), "was not swept"),
        (Overrides(updates=4000), "times the longest"),
        (Overrides(group_size=8), "trainer.group_size = 8"),
        (Overrides(epsilon=0.5), "trainer.epsilon = 0.5"),
    ],
)
def test_leaving_what_it_is_valid_for_is_said(advice: Advice, changes: Overrides, words: str) -> None:
    found = warnings(advice(), RUN, apply(RUN, changes, seed=0), DIGESTS)
    assert any(words in warning for warning in found)


def test_an_edited_setting_of_the_trainer_is_said(advice: Advice) -> None:
    edited = RUN.model_copy(update={"trainer": RUN.trainer.model_copy(update={"temperature": 0.7})})
    assert any("trainer.temperature = 0.7" in w for w in warnings(advice(), RUN, edited, DIGESTS))


@pytest.mark.parametrize("name", ["model", "task", "code"])
def test_another_model_task_or_code_is_said(advice: Advice, name: str) -> None:
    found = warnings(advice(), RUN, RUN, {**DIGESTS, name: "other"})
    assert any(name in warning for warning in found)


@pytest.mark.parametrize(
    "changes", [Overrides(learning_rate=-1.0), Overrides(epsilon=0.0), Overrides(updates=5)]
)
def test_options_that_make_no_run_are_refused(changes: Overrides) -> None:
    with pytest.raises(StudyConfigError, match="calibrate train"):
        apply(RUN, changes, seed=0)
