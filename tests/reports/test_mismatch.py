"""The health check that relates the engine's mismatch floor to the ratio threshold."""

import dataclasses
import math

import numpy as np
import pytest

from calibrator.laws.types import FitResult
from reports.cards.blocks import Check
from reports.cards.health import all_checks, mismatch_checks, mismatch_of
from reports.view import RunView, StudyView

LENGTH = 100


def measured(run: RunView, per_token: float, per_trajectory: float, *, remaining: float = 0.01) -> RunView:
    """The run with a mismatch measured at every fourth update."""
    assert run.curve is not None
    own = np.full(run.curve.updates, np.nan)
    at = np.arange(run.curve.updates) % 4 == 0
    columns = {
        "mismatch_mean": np.where(at, per_token, own),
        "mismatch_log_ratio": np.where(at, per_trajectory, own),
        "response_length": np.full(run.curve.updates, float(LENGTH)),
        "log_ratio_abs_mean": np.where(at, remaining, 0.3),
    }
    return dataclasses.replace(run, curve=dataclasses.replace(run.curve, witnesses=columns))


def checks_with(
    view: StudyView, per_token: float, per_trajectory: float = 0.0, *, remaining: float = 0.01
) -> list[Check]:
    """Only the first run has a mismatch that matters."""
    first, *rest = view.runs
    runs = [
        measured(first, per_token, per_trajectory, remaining=remaining),
        *(measured(r, 1e-8, 1e-7) for r in rest),
    ]
    return mismatch_checks(dataclasses.replace(view, runs=tuple(runs)))


@pytest.mark.parametrize(("share", "status"), [(0.05, "PASS"), (0.2, "WARN"), (0.7, "FAIL")])
def test_the_worst_run_is_held_against_the_threshold(view: StudyView, share: float, status: str) -> None:
    # sqrt(100) = 10 times the mismatch of a token.
    found = checks_with(view, share * math.log(1.2) / 10)
    # `none` has no ratio to cap, so `gmc` alone is checked.
    assert [(c.status, c.code) for c in found] == [(status, "mismatch")]
    assert f"{100 * share:.0f}" in found[0].sentence
    assert "measured" in found[0].sentence
    assert ("learner" in found[0].sentence.split("epsilon")[1]) == (status != "PASS")


def test_deltas_of_one_sign_count_as_they_were_measured(view: StudyView) -> None:
    assert checks_with(view, 1e-3, per_trajectory=0.1)[0].status == "FAIL"


def test_recomputed_behaviour_passes_and_says_so(view: StudyView) -> None:
    runs = tuple(measured(r, 0.05, 0.5, remaining=0.0) for r in view.runs)
    (check,) = mismatch_checks(dataclasses.replace(view, runs=runs))
    assert check.status == "PASS"
    assert "free of it" in check.sentence


def test_what_was_not_measured_is_not_checked(view: StudyView, unknown: StudyView) -> None:
    for study in (view, unknown):
        assert mismatch_checks(study) == []
    assert mismatch_of(measured(view.runs[0], math.nan, math.nan)) is None


@pytest.mark.parametrize("text", ["<b>", "nan", "-1", "", "0"])
def test_a_threshold_that_is_no_number_is_not_checked(view: StudyView, text: str) -> None:
    def with_threshold(epsilon: str) -> StudyView:
        run = view.runs[0].run.model_copy(update={"strata": {"epsilon": epsilon}})
        only = measured(dataclasses.replace(view.runs[0], run=run), 1.0, 1.0)
        return dataclasses.replace(view, runs=(only,), fit=FitResult(strata=[]))

    assert mismatch_checks(with_threshold("0.2"))[0].status == "FAIL"
    assert mismatch_checks(with_threshold(text)) == []


def test_the_check_stands_among_the_others(view: StudyView) -> None:
    runs = tuple(measured(r, 1e-8, 1e-7) for r in view.runs)
    checks = [c for c in all_checks(dataclasses.replace(view, runs=runs)) if c.code == "mismatch"]
    assert [c.status for c in checks] == ["PASS"]
    assert "< 0.1 % of log(1 + epsilon) = 0.18" in checks[0].sentence
