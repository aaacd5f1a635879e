from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrator.advice.bounds import bounds_sentence, upper_bounds
from calibrator.advice.cost import CostModel
from calibrator.advice.recommend import recommend
from calibrator.advice.request import AdviceRequest, ObservedGain
from calibrator.advice.rules import stable_limit
from calibrator.advice.types import Recommendation
from calibrator.errors import NothingToSayError
from calibrator.laws.fitted import FittedStratum
from calibrator.laws.posterior import CEILING, CONSTANT, Posterior
from calibrator.laws.types import BudgetFit, Estimate, Finding, Run, SeenPair

MakePosterior = Callable[..., Posterior]
MakeFitted = Callable[..., FittedStratum]
ONE = Estimate(estimate=1.0, low=0.8, high=1.2)
BUDGET = BudgetFit(
    B=Estimate(estimate=0.05, low=0.04, high=0.06),
    beta=ONE,
    gamma=Estimate(estimate=0.0, low=-0.1, high=0.1),
    sigma=Estimate(estimate=0.3, low=0.2, high=0.4),
)
GAINS = (ObservedGain(cumulative_lr=0.1, gain=0.2), ObservedGain(cumulative_lr=0.3, gain=0.5))


def request(cost: CostModel, **changes: Any) -> AdviceRequest:
    given = {"horizon": 1000, "sync_intervals": (4, 16, 64), "group_size": 16, "epsilon": 0.2, "cost": cost}
    return AdviceRequest(**(given | changes))


def codes(recommendation: Recommendation) -> set[str]:
    return {finding.code for finding in recommendation.findings}


@pytest.fixture
def fitted(make_fitted: MakeFitted, make_posterior: MakePosterior) -> FittedStratum:
    return make_fitted(make_posterior(spread=0.1))


def test_recommends_the_most_progress_per_second(fitted: FittedStratum, cost: CostModel) -> None:
    answer = recommend(fitted, request(cost))
    best = max(answer.frontier, key=lambda row: row.progress_per_second)
    assert (answer.sync_interval, answer.learning_rate) == (best.sync_interval, best.learning_rate)
    assert (answer.group_size, answer.epsilon, answer.max_lag) == (16, 0.2, answer.sync_interval - 1)
    assert [row.sync_interval for row in answer.frontier] == [4, 16, 64]


def test_every_row_is_rounded_down_and_within_the_risk(fitted: FittedStratum, cost: CostModel) -> None:
    for row in recommend(fitted, request(cost)).frontier:
        assert row.learning_rate <= row.max_learning_rate < row.eta_max.estimate
        assert row.collapse_probability.high <= 0.05 * (1 + 1e-6)


def test_time_prefers_a_longer_interval_when_synchronizing_is_dear(
    make_fitted: MakeFitted, make_posterior: MakePosterior, cost: CostModel
) -> None:
    flat = make_fitted(make_posterior(CEILING, C=10.0, eta_0=2e-3))
    dear = cost.model_copy(update={"synchronize": 60.0})
    assert recommend(flat, request(dear)).sync_interval == 64
    assert recommend(flat, request(dear, objective="progress")).sync_interval == 4


def test_synchronous_training_only_when_nothing_else_is_useful(
    make_fitted: MakeFitted, make_posterior: MakePosterior, cost: CostModel, fitted: FittedStratum
) -> None:
    runs = [*fitted.runs, fitted.runs[0].model_copy(update={"sync_interval": 1, "max_lag": 0})]
    stratum = make_fitted(make_posterior(), runs)
    swept = (1, 4, 16)
    assert recommend(stratum, request(cost, sync_intervals=swept)).sync_interval == 4
    limit = stable_limit(make_posterior(), 4, 0.05)
    gains = (ObservedGain(cumulative_lr=1000 * limit * 1.5, gain=1.0),)
    answer = recommend(stratum, request(cost, sync_intervals=swept, gains=gains))
    assert answer.sync_interval == 1
    assert "synchronous_only" in codes(answer)
    assert [row.useful for row in answer.frontier] == [True, False, False]


def test_rate_is_capped_at_the_largest_tested_one(
    make_fitted: MakeFitted, make_posterior: MakePosterior, cost: CostModel
) -> None:
    answer = recommend(make_fitted(make_posterior(CONSTANT, eta_0=1.0)), request(cost))
    assert answer.learning_rate == 0.01
    assert "rate_capped_at_tested" in codes(answer)


def test_rates_below_the_tested_ones_carry_a_finding(
    make_fitted: MakeFitted, make_posterior: MakePosterior, cost: CostModel
) -> None:
    answer = recommend(make_fitted(make_posterior(C=1e-3)), request(cost))
    assert "rate_below_tested" in codes(answer)


def test_intervals_outside_the_tested_ones_are_left_out(fitted: FittedStratum, cost: CostModel) -> None:
    answer = recommend(fitted, request(cost, sync_intervals=(1, 4, 16, 256)))
    assert [row.sync_interval for row in answer.frontier] == [4, 16]
    assert "interval_left_out" in codes(answer)


def test_an_interval_as_long_as_the_run_is_left_out(fitted: FittedStratum, cost: CostModel) -> None:
    answer = recommend(fitted, request(cost, horizon=64))
    assert [row.sync_interval for row in answer.frontier] == [4, 16]


def test_overlap_takes_a_third_of_the_interval_and_keeps_the_rate(
    fitted: FittedStratum, cost: CostModel
) -> None:
    lockstep, overlap = (
        recommend(fitted, request(cost, schedule=schedule)) for schedule in ("lockstep", "overlap")
    )
    assert [row.sync_interval for row in overlap.frontier] == [1, 5, 21]
    assert [row.learning_rate for row in overlap.frontier] == [r.learning_rate for r in lockstep.frontier]
    assert overlap.max_lag == 2 * overlap.sync_interval - 1
    assert "schedule_converted" in codes(overlap)


def test_overlap_without_room_is_refused(
    make_fitted: MakeFitted, make_posterior: MakePosterior, cost: CostModel, fitted: FittedStratum
) -> None:
    runs = [run.model_copy(update={"sync_interval": 1, "max_lag": 0}) for run in fitted.runs]
    stratum = make_fitted(make_posterior(), runs)
    with pytest.raises(NothingToSayError, match="larger sync interval"):
        recommend(stratum, request(cost, sync_intervals=(1,), schedule="overlap"))


def test_extrapolation_is_counted_on_the_l_clock(fitted: FittedStratum, cost: CostModel) -> None:
    answer = recommend(fitted, request(cost, horizon=100_000, warmup=100))
    reached = answer.learning_rate * (100_000 - 100 + 101 / 2)
    assert answer.extrapolation == pytest.approx(reached / fitted.summary.longest_cumulative_lr, rel=1e-5)
    assert "extrapolates" in codes(answer)
    assert "extrapolates" not in codes(recommend(fitted, request(cost, horizon=100)))


def test_the_floor_is_the_smallest_l_with_half_of_the_best_gain(
    fitted: FittedStratum, cost: CostModel
) -> None:
    gains = (*GAINS, ObservedGain(cumulative_lr=0.2, gain=0.25))
    answer = recommend(fitted, request(cost, gains=gains))
    assert answer.floor_learning_rate == pytest.approx(0.2 / 1000)
    assert "floor_assumed" in codes(answer)
    assert "floor_unknown" in codes(recommend(fitted, request(cost)))


def test_no_useful_rate_is_refused_with_a_horizon_that_would_do(
    fitted: FittedStratum, cost: CostModel
) -> None:
    gains = (ObservedGain(cumulative_lr=10.0, gain=1.0),)
    with pytest.raises(NothingToSayError, match=r"horizon of about .* updates"):
        recommend(fitted, request(cost, gains=gains))


def test_without_a_posterior_the_refusal_is_that_of_the_fit(make_fitted: MakeFitted, cost: CostModel) -> None:
    said = Finding(code="no_events", sentence="None of the 6 runs collapsed. Run S = 4 at 0.02.")
    other = Finding(code="hardware", sentence="Something else.")
    with pytest.raises(NothingToSayError) as refusal:
        recommend(make_fitted(None, findings=[other, said]), request(cost))
    assert str(refusal.value) == said.sentence
    with pytest.raises(NothingToSayError, match="both sides"):
        recommend(make_fitted(None), request(cost))


def test_no_interval_within_the_tested_ones_is_refused(fitted: FittedStratum, cost: CostModel) -> None:
    with pytest.raises(NothingToSayError, match="tested range 4 to 64"):
        recommend(fitted, request(cost, sync_intervals=(256,)))


def test_budget_limited_goes_above_the_boundary_and_says_so(fitted: FittedStratum, cost: CostModel) -> None:
    short = {"horizon": 8, "sync_intervals": (4,)}  # at the stable limit L(8) is about half of B
    answer = recommend(fitted, request(cost, rule="budget-limited", **short))
    stable = recommend(fitted, request(cost, **short))
    assert answer.learning_rate > stable.learning_rate
    assert "collapses_at_budget" in codes(answer)
    assert "collapses_at_budget" not in codes(stable)


@settings(deadline=None, max_examples=12)
@given(horizon=st.integers(70, 10**6), risk=st.floats(0.001, 0.3))
def test_conservative_never_exceeds_stable(
    make_fitted: MakeFitted, mixed: Posterior, cost: CostModel, horizon: int, risk: float
) -> None:
    stratum = make_fitted(mixed)
    safe, safer = (
        recommend(stratum, request(cost, rule=rule, horizon=horizon, risk=risk)).frontier
        for rule in ("stable", "conservative")
    )
    assert all(a.learning_rate >= b.learning_rate for a, b in zip(safe, safer, strict=True))


def test_same_input_same_bytes_and_origins_for_every_number(fitted: FittedStratum, cost: CostModel) -> None:
    asked = request(cost, gains=GAINS)
    first, second = (recommend(fitted, asked).model_dump_json() for _ in range(2))
    assert first == second
    answer = Recommendation.model_validate_json(first)
    assert {"sync_interval", "learning_rate", "group_size", "epsilon"} <= answer.origin.keys()
    assert answer.origin["seconds_per_update"] == "measured"


def test_an_assumed_cost_is_named(fitted: FittedStratum, cost: CostModel) -> None:
    assumed = cost.model_copy(update={"origin": "assumed"})
    answer = recommend(fitted, request(assumed))
    assert "cost_assumed" in codes(answer)
    assert answer.origin["progress_per_second"] == "assumed"


def test_a_single_interval_is_named(
    make_fitted: MakeFitted, make_posterior: MakePosterior, cost: CostModel, fitted: FittedStratum
) -> None:
    runs: list[Run] = [run for run in fitted.runs if run.sync_interval == 16]
    answer = recommend(make_fitted(make_posterior(), runs), request(cost))
    assert answer.sync_interval == 16
    assert "one_interval" in codes(answer)


def test_each_row_holds_what_the_three_rules_allow(fitted: FittedStratum, cost: CostModel) -> None:
    for row in recommend(fitted, request(cost, horizon=5000)).frontier:
        assert row.limits["conservative"] <= row.limits["stable"] <= row.limits["budget-limited"]
        assert row.max_learning_rate == row.limits["stable"]
        assert row.cumulative_lr == pytest.approx(5000 * row.learning_rate, rel=1e-5)


def test_hours_and_price_follow_from_measured_seconds(fitted: FittedStratum, cost: CostModel) -> None:
    answer = recommend(fitted, request(cost, horizon=5000, price_per_hour=2.5))
    assert answer.price_per_hour == 2.5
    for row in answer.frontier:
        assert row.hours == pytest.approx(5000 * cost.seconds_per_update(row.sync_interval) / 3600, rel=1e-5)
        assert row.price == pytest.approx(2.5 * row.hours, rel=1e-5)
    assert all(row.price is None for row in recommend(fitted, request(cost)).frontier)


def test_a_horizon_in_hours_gives_each_interval_its_own_updates(
    fitted: FittedStratum, cost: CostModel
) -> None:
    answer = recommend(fitted, request(cost, horizon=1, hours=2.0, horizon_asked="2h", gains=GAINS))
    for row in answer.frontier:
        seconds = cost.seconds_per_update(row.sync_interval)
        assert row.horizon == int(7200 / seconds)
        assert row.hours == pytest.approx(2.0, rel=1e-3)
        assert row.floor_learning_rate == pytest.approx(0.3 / row.horizon, rel=1e-5)
    updates = [row.horizon for row in answer.frontier]
    assert updates == sorted(updates)
    assert updates[0] < updates[-1]
    chosen = next(row for row in answer.frontier if row.sync_interval == answer.sync_interval)
    assert (answer.horizon, answer.horizon_asked) == (chosen.horizon, "2h")


def test_too_few_hours_are_refused(fitted: FittedStratum, cost: CostModel) -> None:
    with pytest.raises(NothingToSayError, match=r"0\.0001 hours"):
        recommend(fitted, request(cost, hours=1e-4))


def test_far_beyond_what_was_watched_the_answer_says_what_it_rests_on(
    make_fitted: MakeFitted, make_posterior: MakePosterior, cost: CostModel
) -> None:
    stratum = make_fitted(make_posterior(spread=0.1))
    summary = stratum.summary.model_copy(update={"budget": BUDGET})
    stratum = FittedStratum(summary, stratum.posterior, stratum.runs)
    answer = recommend(stratum, request(cost, horizon=40_000))
    assert answer.extrapolation >= 10
    (said,) = (finding.sentence for finding in answer.findings if finding.code == "extrapolates")
    for words in ("rests on the law alone", "it is assumed", "L = B = 0.05", "run S ="):
        assert words in said
    near = recommend(stratum, request(cost, horizon=int(40_000 * 2 / answer.extrapolation)))
    assert "rests on" not in next(f.sentence for f in near.findings if f.code == "extrapolates")


def test_where_all_collapsed_the_refusal_bounds_the_rate_from_above(make_fitted: MakeFitted) -> None:
    pairs = [
        SeenPair(
            sync_interval=S,
            learning_rate=rate,
            runs=2,
            collapsed=collapsed,
            cumulative_lr=0.1,
            collapse_probability=Estimate(estimate=collapsed / 2, low=0.3, high=1.0),
        )
        for S, rate, collapsed in ((4, 1e-2, 2), (4, 2e-2, 2), (16, 1e-3, 0), (16, 4e-3, 2), (64, 1e-3, 1))
    ]
    bounds = upper_bounds(pairs)
    assert [(bound.sync_interval, bound.learning_rate) for bound in bounds] == [(4, 1e-2), (16, 4e-3)]
    assert "0.01 at S = 4" in bounds_sentence(bounds)
    assert bounds_sentence([]) == ""
