"""Overrides and warnings of the hand-over; training itself is in test_run.py."""

from __future__ import annotations

from typing import Any

import pytest

from calibrator.advice.types import FrontierRow, Recommendation, ValidFor
from calibrator.cli.train import Overrides, apply, warnings
from calibrator.errors import StudyConfigError
from calibrator.laws.types import Estimate
from trainer.config import RunConfig

DIGESTS = {"model": "m", "task": "t", "code": "c"}


def advice(**changes: Any) -> Recommendation:
    row = FrontierRow(
        sync_interval=4,
        max_learning_rate=1e-3,
        learning_rate=1e-3,
        eta_max=Estimate(estimate=2e-3, low=1.5e-3, high=2.5e-3),
        collapse_probability=Estimate(estimate=0.01, low=0.0, high=0.05),
        seconds_per_update=0.1,
        progress_per_second=0.01,
        useful=True,
    )
    defaults: dict[str, Any] = {
        "sync_interval": 4,
        "max_lag": 3,
        "schedule": "lockstep",
        "learning_rate": 1e-3,
        "group_size": 16,
        "epsilon": 0.2,
        "estimator": "gmc",
        "horizon": 400,
        "risk": 0.05,
        "rule": "stable",
        "objective": "time",
        "collapse_probability": row.collapse_probability,
        "extrapolation": 0.9,
        "origin": {},
        "frontier": [row],
        "valid_for": ValidFor(**DIGESTS, setting="s", longest_cumulative_lr=0.4, sync_intervals=[4]),
    }
    return Recommendation(**{**defaults, **changes})


RUN = RunConfig(sync_interval=4, learning_rate=1e-3, updates=400)


def test_the_recommended_run_needs_no_warning() -> None:
    assert warnings(advice(), RUN, DIGESTS) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (Overrides(learning_rate=2e-3), "above the 0.001"),
        (Overrides(sync_interval=32), "was not swept"),
        (Overrides(updates=4000), "times the longest"),
        (Overrides(group_size=8), "group_size = 8"),
        (Overrides(epsilon=0.5), "epsilon = 0.5"),
    ],
)
def test_leaving_what_it_is_valid_for_is_said(changes: Overrides, words: str) -> None:
    found = warnings(advice(), apply(RUN, changes, seed=0), DIGESTS)
    assert any(words in warning for warning in found)


@pytest.mark.parametrize("name", ["model", "task", "code"])
def test_another_model_task_or_code_is_said(name: str) -> None:
    found = warnings(advice(), RUN, {**DIGESTS, name: "other"})
    assert any(name in warning for warning in found)


@pytest.mark.parametrize(
    "changes", [Overrides(learning_rate=-1.0), Overrides(epsilon=0.0), Overrides(updates=5)]
)
def test_options_that_make_no_run_are_refused(changes: Overrides) -> None:
    with pytest.raises(StudyConfigError, match="calibrate train"):
        apply(RUN, changes, seed=0)
