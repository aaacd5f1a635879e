"""Where a point stands, and which runs say so."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from calibrator.advice import rules
from calibrator.advice.explain import Explanation, Point, explain
from calibrator.advice.influence import draw_log_likelihood, influences
from calibrator.laws.fit import FittedStratum, design_posterior, fit_runs
from calibrator.laws.posterior import Posterior, log_eta_max, prone_probability
from calibrator.laws.table import read_runs
from calibrator.verdicts.types import Verdict
from reports.cards.explanation import standing

TABLES = Path(__file__).parents[2] / "data" / "tables"


@pytest.fixture(scope="module")
def fitted() -> FittedStratum:
    (stratum,) = fit_runs(read_runs(TABLES / "law-holds.csv"))
    return stratum


@pytest.fixture(scope="module")
def posterior(fitted: FittedStratum) -> Posterior:
    assert fitted.posterior is not None
    return fitted.posterior


def at(fitted: FittedStratum, S: int, eta: float, horizon: int | None = 2000) -> Explanation:
    return explain(fitted, Point(S, eta, horizon))


def test_below_the_limit_safe_far_above_the_boundary_unsafe_between_uncertain(
    fitted: FittedStratum, posterior: Posterior
) -> None:
    limit = rules.stable_limit(posterior, 16, 0.05)
    high = float(np.exp(np.quantile(log_eta_max(posterior, 16), 0.95)))
    standings = [
        at(fitted, 16, eta).standing for eta in (0.99 * limit, 1.01 * limit, 0.99 * high, 1.01 * high)
    ]
    assert standings == ["safe", "uncertain", "uncertain", "unsafe"]


def test_the_numbers_are_those_of_the_rules_and_the_truth_lies_in_their_intervals(
    fitted: FittedStratum, posterior: Posterior
) -> None:
    truth = json.loads((TABLES / "truth.json").read_text())["law-holds"]
    eta = truth["C"] / 16
    found = at(fitted, 16, eta)
    assert found.limit == pytest.approx(rules.stable_limit(posterior, 16, 0.05), rel=1e-5)
    assert found.collapse_probability == rules.collapse_by(posterior, 16, eta, 2000, 0)
    assert found.eta_max is not None
    assert found.over_boundary is not None
    assert found.eta_max.low < eta < found.eta_max.high
    assert found.over_boundary.low < 1 < found.over_boundary.high
    assert found.extrapolation == pytest.approx(eta * 2000 / found.longest_cumulative_lr, rel=1e-5)


def test_without_a_horizon_only_what_holds_at_any_is_said(fitted: FittedStratum) -> None:
    found = at(fitted, 16, 1e-6, None)
    assert found.collapse_probability is None
    assert found.extrapolation is None
    assert found.prone is not None
    assert found.limit is not None


def test_witnesses_are_on_the_right_side_in_both_coordinates(fitted: FittedStratum) -> None:
    runs = {run.run: run for run in fitted.runs}
    rates = sorted(run.learning_rate for run in fitted.runs)
    mild, harsh = at(fitted, 8, rates[0]), at(fitted, 32, rates[-1])
    assert mild.survived_beyond
    assert harsh.collapsed_before
    for found in (mild, harsh, at(fitted, 16, rates[len(rates) // 2])):
        S, eta = found.effective_interval, found.learning_rate
        for row in found.survived_beyond:
            assert not runs[row.run].verdict.is_event
            assert row.effective_interval >= S
            assert row.learning_rate >= eta
        for row in found.collapsed_before:
            assert runs[row.run].verdict.is_event
            assert row.effective_interval <= S
            assert row.learning_rate <= eta


def test_the_nearest_runs_are_the_nearest(fitted: FittedStratum) -> None:
    eta = 4e-7
    found = at(fitted, 16, eta)
    away = [
        math.hypot(math.log(run.effective_interval / 16), math.log(run.learning_rate / eta))
        for run in fitted.runs
    ]
    assert [row.away for row in found.nearest] == pytest.approx(sorted(np.exp(away))[:5], rel=1e-5)


def test_runs_that_came_later_are_shown_and_marked(fitted: FittedStratum) -> None:
    later = fitted.runs[0].model_copy(update={"run": "later", "verdict": Verdict.STABLE})
    found = explain(fitted, Point(later.sync_interval, later.learning_rate, 100), [later])
    row = next(row for row in found.nearest if row.run == "later")
    assert not row.in_fit
    assert row.away == 1.0
    assert all(other.run != "later" for other in found.influences)


def test_reweighted_draws_agree_with_a_fit_without_the_run(
    fitted: FittedStratum, posterior: Posterior
) -> None:
    """Where the weights are even, leave-one-out needs no fit: the limit agrees to 4 %, P(prone) to 0.02.

    That is the noise of 5 % quantiles of some thousand draws, and of priors that move a little with the runs.
    """
    eta = rules.stable_limit(posterior, 16, 0.05)
    runs = list(fitted.runs)
    found = [other for other in influences(posterior, runs, 16, eta, 0.05) if not other.refitted]
    assert found
    for other in (found[0], found[-1]):
        rest = design_posterior([run for run in runs if run.run != other.run])
        assert rest is not None
        assert other.limit_without == pytest.approx(rules.stable_limit(rest, 16, 0.05), rel=0.04)
        exact = float(np.mean(prone_probability(rest, 16, eta)))
        assert other.prone_without == pytest.approx(exact, abs=0.02)


def test_a_run_that_says_nothing_moves_nothing(fitted: FittedStratum, posterior: Posterior) -> None:
    """A survivor of hardly any L: every draw gives it the probability one."""
    short = fitted.runs[0].model_copy(
        update={"verdict": Verdict.STABLE, "cumulative_lr": 1e-30, "updates": 1}
    )
    assert draw_log_likelihood(posterior, short) == pytest.approx(0.0, abs=1e-9)
    eta = 1e-6
    other = influences(posterior, [short], 16, eta, 0.05)[0]
    assert other.prone_without == pytest.approx(
        float(np.mean(prone_probability(posterior, 16, eta))), rel=1e-4
    )
    assert other.effective_draws == pytest.approx(posterior.log_B.size)


def test_the_lone_death_beside_a_point_is_what_its_answer_rests_on() -> None:
    """Five survivors and three deaths; the death nearest to the point decides about it."""
    runs = read_runs(TABLES / "law-holds.csv")
    interval = runs[0].sync_interval
    own = [run for run in runs if run.sync_interval == interval]
    deaths = sorted((run for run in own if run.verdict.is_event), key=lambda run: run.learning_rate)
    posterior = design_posterior(own)
    assert posterior is not None
    found = influences(posterior, own, interval, deaths[0].learning_rate, 0.05)
    assert found[0].run in {run.run for run in own}
    without = next(other for other in found if other.run == deaths[0].run)
    now = float(np.mean(prone_probability(posterior, interval, deaths[0].learning_rate)))
    assert without.prone_without < now


def test_outside_the_tested_range_it_says_so(fitted: FittedStratum) -> None:
    codes = {finding.code for finding in at(fitted, 4096, 1e-9, 10**6).findings}
    assert {"interval_untested", "rate_untested"} <= codes
    assert "extrapolates" in {f.code for f in at(fitted, 16, 1e-6, 10**8).findings}


def test_without_a_boundary_the_runs_still_speak() -> None:
    (stratum,) = fit_runs(read_runs(TABLES / "too-short-to-tell.csv"))
    found = at(stratum, 16, 1e-7)
    assert found.standing == "unknown"
    assert found.prone is None
    assert found.nearest


def test_a_rate_below_the_floor_is_safe_and_useless(fitted: FittedStratum, posterior: Posterior) -> None:
    eta = rules.stable_limit(posterior, 16, 0.05) / 2
    found = explain(fitted, Point(16, eta, 2000, floor=1.5 * eta))
    assert found.standing == "safe"
    assert "below_floor" in [finding.code for finding in found.findings]
    assert standing(found).startswith("Safe, but too small")
    enough = explain(fitted, Point(16, eta, 2000, floor=eta))
    assert "below_floor" not in [finding.code for finding in enough.findings]
