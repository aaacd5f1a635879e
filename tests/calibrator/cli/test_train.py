"""Overrides and warnings of the hand-over; training itself is in test_run.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from calibrator.advice.types import Recommendation
from calibrator.cli.train import Overrides, apply, staleness, train_from, warnings
from calibrator.errors import StudyConfigError
from trainer.config import RunConfig
from trainer.summary import RunSummary

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


def test_another_schedule_keeps_the_mean_lag(advice: Advice) -> None:
    """S = 4 in lockstep has lags 0..3, mean 1.5; with one cycle queued S = 1 has lag 1: no more stale, no warning."""
    run = apply(RUN, Overrides(schedule="overlap"), seed=0)
    assert (run.schedule, run.sync_interval, run.lag_bound) == ("overlap", 1, 1)
    assert warnings(advice(), RUN, run, DIGESTS) == []


def test_a_recommendation_for_overlap_speaks_of_overlap(advice: Advice) -> None:
    """Its frontier is in the S of overlap: the run that it names needs no warning, a staler one does."""
    given = advice(schedule="overlap", max_lag=7)
    wanted = RunConfig(sync_interval=4, learning_rate=1e-3, updates=400, schedule="overlap")
    assert warnings(given, wanted, wanted, DIGESTS) == []
    lockstep = wanted.model_copy(update={"schedule": "lockstep"})
    assert warnings(given, wanted, lockstep, DIGESTS) == []  # less stale
    staler = apply(wanted, Overrides(max_lag=8), seed=0)
    assert any("was not swept" in said for said in warnings(given, wanted, staler, DIGESTS))
    faster = apply(wanted, Overrides(learning_rate=2e-3), seed=0)
    assert any("at S = 4 under overlap" in said for said in warnings(given, wanted, faster, DIGESTS))


def test_a_lag_bound_in_lockstep_is_refused() -> None:
    with pytest.raises(StudyConfigError, match="--max-lag"):
        apply(RUN, Overrides(max_lag=7), seed=0)


def test_more_staleness_than_was_swept_is_said(advice: Advice) -> None:
    run = apply(RUN, Overrides(schedule="overlap", sync_interval=8), seed=0)
    assert run.lag_bound == 15
    assert any("S_eff = 24 was not swept" in said for said in warnings(advice(), RUN, run, DIGESTS))


def test_another_engine_is_said(advice: Advice) -> None:
    run = apply(RUN, Overrides(engine="vllm"), seed=0)
    assert any("engine = 'vllm' was not swept" in w for w in warnings(advice(), RUN, run, DIGESTS))


def test_synchronous_settings_have_no_overlap() -> None:
    with pytest.raises(StudyConfigError, match="no room for rollouts made ahead"):
        apply(RUN.model_copy(update={"sync_interval": 1}), Overrides(schedule="overlap"), seed=0)


def test_how_stale_a_run_was_is_said_in_a_line() -> None:
    summary = RunSummary(
        updates=40,
        ended="stopped",
        held_out_before=None,
        held_out_after=None,
        lag_bound=7,
        lag_reached=5,
        paced=0,
        discarded_groups=4,
        discarded_length=8.25,
        discarded_pass_rate=0.5,
    )
    said = staleness(summary)
    assert "at most 5 updates, bound 7 (never reached" in said
    assert "4 finished groups unused at the early end (mean length 8.2, pass rate 0.50)" in said
    assert "waited 3 times" in staleness(summary.model_copy(update={"paced": 3}))


def test_a_file_of_settings_needs_a_folder_for_the_run(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("updates = 20")
    with pytest.raises(StudyConfigError, match="--out"):
        train_from(path, out=None, changes=Overrides(), seed=0, keep_going=False)
    with pytest.raises(StudyConfigError, match="lacks model, task"):
        train_from(path, out=tmp_path / "run", changes=Overrides(), seed=0, keep_going=False)
