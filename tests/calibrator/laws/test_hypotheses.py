"""The published exponents are kept, rejected or untested, and say so."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from calibrator.laws.fit import fit_runs
from calibrator.laws.hypotheses import spell
from calibrator.laws.table import read_runs
from calibrator.laws.types import Estimate, LawTest, Run, StratumFit

TABLES = Path(__file__).parents[2] / "data" / "tables"


@cache
def _runs(name: str) -> tuple[Run, ...]:
    return tuple(read_runs(TABLES / f"{name}.csv"))


def _tests(runs: list[Run]) -> tuple[StratumFit, dict[str, LawTest]]:
    fit = fit_runs(runs)[0].summary
    return fit, {test.law: test for test in fit.tests}


@pytest.mark.parametrize(
    ("name", "alpha"), [("law-holds", "kept"), ("weak-dependence", "rejected"), ("warmup", "kept")]
)
def test_alpha_is_rejected_for_the_weak_dependence_only(name: str, alpha: str) -> None:
    fit, tests = _tests(list(_runs(name)))
    assert {law: test.outcome for law, test in tests.items()} == {
        "alpha = 1": alpha,
        "beta = 1": "kept",
        "gamma = 0": "kept",
    }
    assert fit.boundary is not None
    estimate = fit.boundary.models["power"].alpha
    assert estimate is not None
    assert f"{estimate.estimate:.2g}" in tests["alpha = 1"].sentence
    said = {finding.code: finding.sentence for finding in fit.findings}
    assert said.get("alpha_not_one") == (tests["alpha = 1"].sentence if alpha == "rejected" else None)


def test_one_interval_and_one_rate_test_nothing() -> None:
    fit, tests = _tests([run for run in _runs("law-holds") if run.sync_interval == 16])
    assert (tests["alpha = 1"].outcome, tests["gamma = 0"].outcome) == ("untested", "untested")
    assert "one S_eff" in tests["alpha = 1"].sentence
    assert "gamma_not_tested" in {finding.code for finding in fit.findings}
    moved = [run.model_copy(update={"learning_rate": 1e-7}) for run in _runs("law-holds")]
    _, tests = _tests(moved)
    assert (tests["alpha = 1"].outcome, tests["beta = 1"].outcome) == ("untested", "untested")
    assert "one learning rate" in tests["alpha = 1"].sentence


def test_a_collapse_time_that_follows_s_rejects_gamma() -> None:
    """Onsets moved by S/16: death after a number of cycles, not at an L."""
    moved = [
        run
        if run.onset_low is None
        else run.model_copy(
            update={
                name: getattr(run, name) * run.sync_interval / 16
                for name in ("cumulative_lr_onset_low", "cumulative_lr_onset_high")
            }
        )
        for run in _runs("law-holds")
    ]
    fit, tests = _tests(moved)
    assert tests["gamma = 0"].outcome == "rejected"
    assert fit.budget is not None
    assert fit.budget.gamma.low > 0


def test_rejected_exponents_are_freed_beside_the_headline() -> None:
    """Onsets in updates that fall as eta^-2: the boundary with beta free stands beside the one of the advice."""
    slow = [
        run
        if run.onset_low is None
        else run.model_copy(
            update={
                name: getattr(run, name) * 3.2e-7 / run.learning_rate
                for name in ("cumulative_lr_onset_low", "cumulative_lr_onset_high")
            }
        )
        for run in _runs("law-holds")
    ]
    fit, tests = _tests(slow)
    said = {finding.code: finding.sentence for finding in fit.findings}
    assert tests["beta = 1"].outcome == "rejected"
    assert "although beta = 1 is rejected" in said["exponents_freed"]
    kept, _ = _tests(_runs("law-holds"))
    assert "exponents_freed" not in {finding.code for finding in kept.findings}


def test_as_many_digits_as_the_outcome_needs() -> None:
    rejected = Estimate(estimate=1.2, low=1.04, high=1.4)
    assert spell(rejected) == "1.2 (1 to 1.4)"
    assert spell(rejected, 1.0) == "1.2 (1.04 to 1.4)"
    assert spell(Estimate(estimate=0.96, low=0.55, high=1.3), 1.0) == "0.96 (0.55 to 1.3)"
