"""From a fitted stratum to a recommendation, or to a refusal that says what to run next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from calibrator.advice.bounds import bounds_sentence, refused
from calibrator.advice.findings import (
    horizon_findings,
    interval_findings,
    listed,
    rate_findings,
    unmeasured_findings,
)
from calibrator.advice.frontier import best_row, frontier_row, lag_of
from calibrator.advice.request import AdviceRequest, max_lag
from calibrator.advice.rules import crossover, lr_clock, stable_limit
from calibrator.advice.types import FrontierRow, Origin, Recommendation
from calibrator.errors import NothingToSayError
from calibrator.laws.evidence import round_up
from calibrator.laws.fitted import FittedStratum
from calibrator.laws.observations import is_used
from calibrator.laws.posterior import Posterior, rounded
from calibrator.laws.types import Run
from calibrator.wording import plural

REFUSALS = (
    "no_runs",
    "no_events",
    "too_few_events",
    "no_survivors",
    "runs_shorter_than_budget",
    "one_setting",
)
"""Codes of the findings with which a fit refuses a boundary."""


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
        raise NothingToSayError(_nothing_fitted(fitted))
    rows = _frontier(fitted.posterior, runs, request)
    chosen = best_row(list(rows.values()), request)
    if chosen is None:
        raise NothingToSayError(_nothing_useful(rows, request))
    request = request.model_copy(update={"horizon": chosen.horizon})
    floor = chosen.floor_learning_rate
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
        objective="progress" if request.cost is None else request.objective,
        collapse_probability=chosen.collapse_probability,
        extrapolation=extrapolation,
        suggested=request.suggested,
        origin=_origins(request),
        frontier=list(rows.values()),
        floor_learning_rate=floor,
        horizon_asked=request.horizon_asked,
        price_per_hour=request.price_per_hour,
        crossover_interval=crossover(fitted.posterior, request.horizon, request.warmup),
        findings=[
            *rate_findings(chosen, runs, effective, stable, request),
            *interval_findings(chosen, rows, request),
            *horizon_findings(extrapolation, floor, request, chosen, fitted.summary),
            *request.measured,
            *unmeasured_findings(request),
            *fitted.summary.findings,
        ],
    )


def _frontier(posterior: Posterior, runs: Sequence[Run], request: AdviceRequest) -> dict[int, FrontierRow]:
    """Rows by swept S_eff, ascending. Of two with the same S under the schedule the more cautious stays."""
    largest = max(run.learning_rate for run in runs)
    rows: dict[int, FrontierRow] = {}
    for interval in _within_tested(runs, request):
        row = frontier_row(posterior, interval, request, largest_tested_rate=largest)
        if row is not None:
            rows = {key: old for key, old in rows.items() if old.sync_interval != row.sync_interval}
            rows[interval] = row
    return rows


def _within_tested(runs: Sequence[Run], request: AdviceRequest) -> list[int]:
    """Swept S_eff between the smallest and the largest tested one and below a horizon in updates, ascending."""
    tested = [run.effective_interval for run in runs]
    low, high = min(tested), max(tested)
    if request.hours is None:
        high = min(high, request.horizon - 1)
    inside = [interval for interval in sorted(set(request.sync_intervals)) if low <= interval <= high]
    if not inside:
        raise NothingToSayError(
            f"none of the intervals S = {listed(request.sync_intervals)} lies within the tested range "
            f"{low} to {max(tested)} and below the horizon of {request.horizon} updates: "
            "sweep an interval that the intended run could use"
        )
    return inside


def _origins(request: AdviceRequest) -> dict[str, Origin]:
    """Where each number comes from. G and epsilon are the study's own settings, which no run has put to the test."""
    cost = {} if request.cost is None else _cost_origins(request.cost.origin)
    return {
        "sync_interval": "derived",
        "learning_rate": "derived",
        "group_size": "assumed",
        "epsilon": "assumed",
        "collapse_probability": "derived",
        "extrapolation": "derived",
        "cumulative_lr": "derived",
        "limits": "derived",
        **cost,
        "floor_learning_rate": "derived" if request.gains else "assumed",
    }


def _cost_origins(origin: Literal["measured", "assumed"]) -> dict[str, Origin]:
    return {
        "seconds_per_update": origin,
        "progress_per_second": "derived" if origin == "measured" else "assumed",
        "hours": "derived" if origin == "measured" else "assumed",
        "price": "assumed",
    }


def _nothing_fitted(fitted: FittedStratum) -> str:
    """Why the fit gives no boundary, what bounds it all the same, and what to run next."""
    said = [finding.sentence for finding in fitted.summary.findings if finding.code in REFUSALS]
    bounds = bounds_sentence(refused(fitted).upper_bounds)
    return (
        " ".join([*said, *([bounds] if said and bounds else [])])
        or "the runs do not identify the boundary: add runs on both sides of it"
    )


def _nothing_useful(rows: Mapping[int, FrontierRow], request: AdviceRequest) -> str:
    if not rows and request.hours is not None:
        return f"no tested S_eff fits into {request.hours:g} hours under {request.schedule}: give the run more hours"
    least = max_lag(1, request.schedule, request.queued_cycles)
    if not rows and request.max_lag is not None and request.max_lag < least and not request.realised:
        return f"under {request.schedule} the lag is at least {plural(least, 'update')}: allow a larger one"
    if not rows and request.max_lag is not None:
        return (
            f"no tested S_eff keeps the lag within {request.max_lag} updates under {request.schedule}: allow a larger "
            "lag, or sweep a smaller sync interval"
        )
    if not rows:
        return (
            f"no tested S_eff admits an interval under {request.schedule} with {request.queued_cycles} "
            "queued cycle(s): sweep a larger sync interval"
        )
    best = max(rows.values(), key=lambda row: row.learning_rate)
    floor, updates = best.floor_learning_rate or 0.0, best.horizon or request.horizon
    longer = updates * floor / best.learning_rate
    if request.rule == "conservative":  # B / T falls with T as the floor does: no horizon helps
        return (
            f"every learning rate that rule 'conservative' allows is too small to learn anything useful in {updates} "
            f"updates: the largest is {best.learning_rate:.2g} at S = {best.sync_interval}, useful from {floor:.2g}; "
            "a longer horizon does not help, since B/T falls with it; ask for rule 'stable'"
        )
    return (
        f"every safe learning rate is too small to learn anything useful in {updates} updates: the "
        f"largest is {best.learning_rate:.2g} at S = {best.sync_interval}, useful from {floor:.2g}; ask for "
        f"a horizon of about {round_up(longer)} updates, accept more risk, or run more seeds near "
        f"{best.eta_max.estimate:.2g} to narrow the boundary"
    )
