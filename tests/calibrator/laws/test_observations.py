"""Which runs enter the fit, and on which interval of L."""

from __future__ import annotations

import numpy as np
import pytest

from calibrator.laws.observations import is_used, observe, onset_interval, thinned
from calibrator.laws.types import Run


def _run(verdict: str, **values: object) -> Run:
    given: dict[str, object] = {
        "run": "a",
        "estimator": "gmc",
        "sync_interval": 4,
        "max_lag": 3,
        "learning_rate": 0.01,
        "updates": 100,
        "verdict": verdict,
        "cumulative_lr": 0.9,
    }
    return Run.model_validate(given | values)


def test_cumulative_rates_are_preferred_to_eta_times_updates() -> None:
    run = _run(
        "collapsed", onset_low=8, onset_high=12, cumulative_lr_onset_low=0.05, cumulative_lr_onset_high=0.08
    )
    assert onset_interval(run) == (0.05, 0.08)
    assert onset_interval(_run("collapsed", onset_low=8, onset_high=12)) == pytest.approx((0.08, 0.12))


def test_a_point_is_widened_to_the_update_that_ends_there() -> None:
    assert onset_interval(_run("diverged", onset_low=12, onset_high=12)) == pytest.approx((0.11, 0.12))
    assert onset_interval(_run("diverged", onset_low=0, onset_high=0)) == pytest.approx((0.0, 0.01))


def test_an_event_without_onset_happened_somewhere_in_the_run() -> None:
    assert onset_interval(_run("collapsed")) == (0.0, 0.9)


@pytest.mark.parametrize(
    ("verdict", "used"),
    [
        ("stable", True),
        ("collapsed", True),
        ("diverged", True),
        ("degraded", True),
        ("interrupted", True),
        ("untrained", False),
        ("inconclusive", False),
    ],
)
def test_verdicts_in_the_fit(verdict: str, used: bool) -> None:
    assert is_used(_run(verdict)) is used
    assert not is_used(_run(verdict, learning_rate=0.0))


def test_degraded_is_a_survivor_unless_told_otherwise() -> None:
    run = _run("degraded")
    assert observe([run]).survivors.S.size == 1
    assert observe([run], degraded_dies=True).events.S.size == 1


def test_equal_runs_are_merged() -> None:
    group = observe([_run("stable"), _run("stable", run="b"), _run("stable", learning_rate=0.02)]).survivors
    assert group.count.tolist() == [2, 1]


def test_thinned_rows_stand_for_all() -> None:
    many = observe([_run("stable", learning_rate=0.01 + 1e-6 * k) for k in range(1000)])
    few = thinned(many, 100).survivors
    assert few.S.size == 100
    assert few.count.sum() == pytest.approx(1000)
    # evenly spaced rows keep the mean to within one spacing of ten rows
    assert np.average(few.log_eta, weights=few.count) == pytest.approx(
        many.survivors.log_eta.mean(), abs=1e-5 / 0.01
    )
