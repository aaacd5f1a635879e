"""From a fitted stratum to a recommendation, or to a refusal that says what to run next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from calibrator.advice.findings import horizon_findings, interval_findings, listed, rate_findings
from calibrator.advice.frontier import best_row, floor_learning_rate, frontier_row, lag_of
from calibrator.advice.request import AdviceRequest
from calibrator.advice.rules import crossover, lr_clock, stable_limit
from calibrator.advice.types import FrontierRow, Origin, Recommendation
from calibrator.errors import NothingToSayError
from calibrator.laws.observations import is_event, is_used
from calibrator.laws.posterior import Posterior, rounded
from calibrator.laws.types import Run
from calibrator.sweep.design import bracket

if TYPE_CHECKING:
    from calibrator.laws.fit import FittedStratum


def recommend(fitted: FittedStratum, request: AdviceRequest) -> Recommendation:
    """The pair (S, eta) with the most progress among those that the rule allows, with its frontier.

    Units: eta in LR, S and T in updates. Intervals are swept ones, never extrapolated; eta may lie below the
    tested rates, with a finding, never above.

    Raises NothingToSayError when the runs do not identify the boundary, when no swept interval lies within
    the tested ones, or when every safe rate lies below the floor. Its text says what the runs still show and
    what to run next.
    """
    runs = [run for run in fitted.runs if is_used(run)]
    if fitted.posterior is None:
        raise NothingToSayError(_nothing_fitted(runs, request))
    floor = floor_learning_rate(request.gains, request.horizon, request.warmup)
    rows = _frontier(fitted.posterior, runs, request, floor)
    chosen = best_row(list(rows.values()), request)
    if chosen is None:
        raise NothingToSayError(_nothing_useful(rows, request, floor))
    reached = chosen.learning_rate * lr_clock(request.horizon, request.warmup)
    extrapolation = rounded(reached / fitted.summary.longest_cumulative_lr)
    effective = next(interval for interval, row in rows.items() if row is chosen)
    stable = stable_limit(fitted.posterior, effective, request.risk)
    return Recommendation(
        sync_interval=chosen.sync_interval,
        max_lag=lag_of(chosen, request),
        schedule=request.schedule,
        learning_rate=chosen.learning_rate,
        group_size=request.group_size,
        epsilon=request.epsilon,
        estimator=fitted.summary.estimator,
        horizon=request.horizon,
        risk=request.risk,
        rule=request.rule,
        objective=request.objective,
        collapse_probability=chosen.collapse_probability,
        extrapolation=extrapolation,
        suggested=request.suggested,
        origin=_origins(request),
        frontier=list(rows.values()),
        floor_learning_rate=floor,
        crossover_interval=crossover(fitted.posterior, request.horizon, request.warmup),
        findings=[
            *rate_findings(chosen, runs, effective, stable, request),
            *interval_findings(chosen, rows, request),
            *horizon_findings(extrapolation, floor, request),
        ],
    )


def _frontier(
    posterior: Posterior, runs: Sequence[Run], request: AdviceRequest, floor: float | None
) -> dict[int, FrontierRow]:
    """Rows by swept S_eff, ascending. Of two with the same S under the schedule the more cautious stays."""
    largest = max(run.learning_rate for run in runs)
    rows: dict[int, FrontierRow] = {}
    for interval in _within_tested(runs, request):
        row = frontier_row(posterior, interval, request, largest_tested_rate=largest, floor=floor)
        if row is not None:
            rows = {key: old for key, old in rows.items() if old.sync_interval != row.sync_interval}
            rows[interval] = row
    return rows


def _within_tested(runs: Sequence[Run], request: AdviceRequest) -> list[int]:
    """Swept S_eff between the smallest and the largest tested one and below the horizon, ascending."""
    tested = [run.effective_interval for run in runs]
    low, high = min(tested), min(max(tested), request.horizon - 1)
    inside = [interval for interval in sorted(set(request.sync_intervals)) if low <= interval <= high]
    if not inside:
        raise NothingToSayError(
            f"none of the intervals S = {listed(request.sync_intervals)} lies within the tested range "
            f"{low} to {max(tested)} and below the horizon of {request.horizon} updates: "
            "sweep an interval that the intended run could use"
        )
    return inside


def _origins(request: AdviceRequest) -> dict[str, Origin]:
    """Where each number comes from. The swept G and epsilon are measured: every run was made with them."""
    measured = request.cost.origin == "measured"
    return {
        "sync_interval": "derived",
        "learning_rate": "derived",
        "group_size": "measured",
        "epsilon": "measured",
        "collapse_probability": "derived",
        "extrapolation": "derived",
        "seconds_per_update": request.cost.origin,
        "progress_per_second": "derived" if measured else "assumed",
        "floor_learning_rate": "derived" if request.gains else "assumed",
    }


def _nothing_fitted(runs: Sequence[Run], request: AdviceRequest) -> str:
    """What runs without a fitted boundary still show, and the rates that would identify it."""
    if not runs:
        return "no run has a verdict that the laws can use: run the sweep, or longer runs"
    return f"{_what_is_seen(runs)}; run next: {_run_next(runs, request)}"


def _what_is_seen(runs: Sequence[Run]) -> str:
    events = sum(is_event(run) for run in runs)
    if events == len(runs):
        return f"all {events} runs collapsed: nothing shows which learning rate is safe"
    if events:
        return f"{events} of {len(runs)} runs collapsed, too few or too alike to identify the boundary"
    # With n independent survivors, prod(1 - p_i) >= 0.05 and the mean inequality bound the average of p_i.
    bound = 1 - 0.05 ** (1 / len(runs))
    longest = max(run.cumulative_lr for run in runs)
    return (
        f"none of {len(runs)} runs collapsed by its last L (the longest {longest:.2g}): their average chance "
        f"of collapse by then is below {bound:.2g} at 95 %, and nothing bounds the learning rate from above"
    )


def _run_next(runs: Sequence[Run], request: AdviceRequest) -> str:
    rates = {interval: bracket(runs, interval) for interval in sorted(set(request.sync_intervals))}
    return ", ".join(
        f"S = {interval} at learning rate {rate:.2g}" for interval, rate in rates.items() if rate
    )


def _nothing_useful(rows: Mapping[int, FrontierRow], request: AdviceRequest, floor: float | None) -> str:
    if not rows or floor is None:
        return (
            f"no tested S_eff admits an interval under {request.schedule} with {request.queued_cycles} "
            "queued cycle(s): sweep a larger sync interval"
        )
    best = max(rows.values(), key=lambda row: row.learning_rate)
    longer = request.horizon * floor / best.learning_rate
    return (
        f"every safe learning rate is too small to learn anything useful in {request.horizon} updates: the "
        f"largest is {best.learning_rate:.2g} at S = {best.sync_interval}, useful from {floor:.2g}; ask for "
        f"a horizon of about {longer:.2g} updates, accept more risk, or run more seeds near "
        f"{best.eta_max.estimate:.2g} to narrow the boundary"
    )
