"""Why one point (S, eta) is safe or not, and which runs say so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from calibrator.advice.influence import Influence, influences
from calibrator.advice.request import effective_under
from calibrator.advice.rules import boundary_at, collapse_by, lr_clock, mean_chance, rate_limit
from calibrator.advice.types import Rule
from calibrator.laws.evidence import realised_intervals
from calibrator.laws.fitted import FittedStratum
from calibrator.laws.observations import is_event, is_used
from calibrator.laws.posterior import Posterior, interval, log_eta_max, prone_probability, rounded
from calibrator.laws.types import Estimate, Finding, Run
from trainer.names import ScheduleName

NEAREST = 5
"""Runs that are shown of each kind."""
INFLUENTIAL = 3

Standing = Literal["safe", "uncertain", "unsafe", "unknown"]
"""safe: the rule allows eta. unsafe: eta lies above eta_max with 95 % credibility. uncertain: neither. unknown: the
runs identify no boundary."""


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NearRun(_Record):
    """A run as it stands to the point."""

    run: str
    verdict: str
    sync_interval: int
    effective_interval: int
    """S_eff = 1 + largest lag before onset, which the laws are about."""
    learning_rate: float
    cumulative_lr: float
    """L at its end, LR x updates."""
    cumulative_lr_at_onset: tuple[float, float] | None = None
    away: float
    """Distance as a factor: exp of the length of (log S_eff, log eta) from the point; 1 is the point itself."""
    in_fit: bool
    """False for the runs that confirm the recommendation: they came after its fit."""


class Explanation(_Record):
    """What the runs say about one point. Null where there is no boundary, or no horizon was given."""

    schema_version: int = 1
    estimator: str
    sync_interval: int
    schedule: ScheduleName = "lockstep"
    effective_interval: int
    learning_rate: float
    horizon: int | None
    """T, in updates."""
    risk: float
    rule: Rule
    standing: Standing
    prone: Estimate | None = None
    """P(prone to collapse), at any horizon; the mean over the posterior, with its 90 % interval."""
    collapse_probability: Estimate | None = None
    """P(collapse by T)."""
    eta_max: Estimate | None = None
    """Boundary at this S: half of the runs are prone there."""
    over_boundary: Estimate | None = None
    """eta / eta_max."""
    limit: float | None = None
    """Largest eta that the rule allows at this S."""
    longest_cumulative_lr: float
    """Longest observed L."""
    extrapolation: float | None = None
    """L(T) over the longest observed L: above 1 the answer reaches beyond what was seen."""
    nearest: list[NearRun]
    survived_beyond: list[NearRun]
    """Runs that survived although neither their S_eff nor their eta is smaller, longest L first."""
    collapsed_before: list[NearRun]
    """Runs that collapsed although neither their S_eff nor their eta is larger, the nearest first."""
    influences: list[Influence] = []
    """The runs on which the answer rests most, by what would change without each."""
    findings: list[Finding] = []


@dataclass(frozen=True)
class Point:
    """The pair that is asked about, and the question."""

    sync_interval: int
    learning_rate: float
    horizon: int | None
    risk: float = 0.05
    rule: Rule = "stable"
    warmup: int = 0
    schedule: ScheduleName = "lockstep"
    swept: tuple[int, ...] = ()
    """S_eff of the study's frontier: under another schedule than lockstep S is converted to these."""
    floor: float | None = None
    """eta below which a run to T would learn nothing useful, where the study knows one."""


def explain(fitted: FittedStratum, point: Point, later: Sequence[Run] = ()) -> Explanation:
    """What the fit and its runs say about the point; `later` are runs of the stratum that are not in the fit.

    Dominance needs no law, only that a run is not safer at a larger S_eff and a larger eta: S_eff eta alone orders runs
    only where the boundary goes as 1/S.
    """
    used = [run for run in fitted.runs if is_used(run)]
    effective = effective_interval(used, point)
    rows = [_near(run, effective, point.learning_rate, in_fit=True) for run in used]
    rows += [_near(run, effective, point.learning_rate, in_fit=False) for run in later if is_used(run)]
    died = {run.run for run in [*used, *later] if is_event(run)}
    longest = max(
        fitted.summary.longest_cumulative_lr,
        *(run.cumulative_lr for run in later if is_used(run) and not is_event(run)),
        0.0,
    )
    found = Explanation(
        estimator=fitted.summary.estimator,
        sync_interval=point.sync_interval,
        schedule=point.schedule,
        effective_interval=effective,
        learning_rate=point.learning_rate,
        horizon=point.horizon,
        risk=point.risk,
        rule=point.rule,
        standing="unknown",
        longest_cumulative_lr=longest,
        nearest=sorted(rows, key=lambda row: row.away)[:NEAREST],
        survived_beyond=_survived_beyond(rows, died, effective, point.learning_rate),
        collapsed_before=_collapsed_before(rows, died, effective, point.learning_rate),
    )
    if fitted.posterior is not None:
        found = found.model_copy(update=_by_the_laws(fitted.posterior, used, effective, point, longest))
    return found.model_copy(update={"findings": [*_below(point), *_findings(found, used)]})


def effective_interval(runs: Sequence[Run], point: Point) -> int:
    """S_eff of the point: the largest that runs with this S realised, else S; never more than T.

    The runs were made in lockstep; under overlap it is the one with the mean lag of S.
    """
    effective = realised_intervals(runs).get(point.sync_interval, point.sync_interval)
    if point.schedule != "lockstep":
        effective = effective_under(point.sync_interval, point.schedule, point.swept)
    return effective if point.horizon is None else min(effective, point.horizon)


def _by_the_laws(
    posterior: Posterior, used: Sequence[Run], effective: int, point: Point, longest: float
) -> dict[str, object]:
    """Fields that need a posterior."""
    eta, horizon = point.learning_rate, point.horizon
    over = interval(np.exp(math.log(eta) - log_eta_max(posterior, effective)))
    update: dict[str, object] = {
        "prone": mean_chance(prone_probability(posterior, effective, eta)),
        "eta_max": boundary_at(posterior, effective),
        "over_boundary": over,
        "influences": influences(posterior, used, effective, eta, point.risk)[:INFLUENTIAL],
    }
    limit = None
    if horizon is not None or point.rule == "stable":
        limit = rate_limit(
            posterior, effective, rule=point.rule, horizon=horizon or 1, risk=point.risk, warmup=point.warmup
        )
        update["limit"] = rounded(limit)
    if horizon is not None:
        update["collapse_probability"] = collapse_by(posterior, effective, eta, horizon, point.warmup)
        update["extrapolation"] = rounded(eta * lr_clock(horizon, point.warmup) / longest)
    safe = limit is not None and eta <= limit
    update["standing"] = "safe" if safe else "unsafe" if over.low > 1 else "uncertain"
    return update


def _near(run: Run, effective: int, eta: float, *, in_fit: bool) -> NearRun:
    away = math.hypot(math.log(run.effective_interval / effective), math.log(run.learning_rate / eta))
    low, high = run.cumulative_lr_onset_low, run.cumulative_lr_onset_high
    return NearRun(
        run=run.run,
        verdict=run.verdict.value,
        sync_interval=run.sync_interval,
        effective_interval=run.effective_interval,
        learning_rate=run.learning_rate,
        cumulative_lr=rounded(run.cumulative_lr),
        cumulative_lr_at_onset=None if low is None or high is None else (rounded(low), rounded(high)),
        away=rounded(math.exp(away)),
        in_fit=in_fit,
    )


def _survived_beyond(rows: Sequence[NearRun], died: set[str], effective: int, eta: float) -> list[NearRun]:
    beyond = [
        row
        for row in rows
        if row.run not in died and row.effective_interval >= effective and row.learning_rate >= eta
    ]
    return sorted(beyond, key=lambda row: -row.cumulative_lr)[:NEAREST]


def _collapsed_before(rows: Sequence[NearRun], died: set[str], effective: int, eta: float) -> list[NearRun]:
    before = [
        row
        for row in rows
        if row.run in died and row.effective_interval <= effective and row.learning_rate <= eta
    ]
    return sorted(before, key=lambda row: row.away)[:NEAREST]


def _below(point: Point) -> list[Finding]:
    if point.floor is None or point.learning_rate >= point.floor:
        return []
    sentence = (
        f"eta = {point.learning_rate:.3g} lies below the floor {point.floor:.3g}: a run to T would learn nothing "
        "useful, by the gains that the study's runs made on the clock L."
    )
    return [Finding(code="below_floor", sentence=sentence)]


def _findings(found: Explanation, used: Sequence[Run]) -> list[Finding]:
    """Where the answer leaves what was tested."""
    said = []
    intervals = sorted({run.effective_interval for run in used})
    rates = sorted({run.learning_rate for run in used})
    if intervals and not intervals[0] <= found.effective_interval <= intervals[-1]:
        said.append(
            Finding(
                code="interval_untested",
                sentence=f"S_eff = {found.effective_interval} lies outside the tested {intervals[0]} to "
                f"{intervals[-1]}: the form of the boundary decides, not a run.",
            )
        )
    if rates and not rates[0] <= found.learning_rate <= rates[-1]:
        said.append(
            Finding(
                code="rate_untested",
                sentence=f"eta = {found.learning_rate:.3g} lies outside the tested {rates[0]:.3g} to {rates[-1]:.3g}: "
                "the form of the model decides, not a run.",
            )
        )
    if found.extrapolation is not None and found.extrapolation > 1:
        said.append(
            Finding(
                code="extrapolates",
                sentence=f"L(T) is {found.extrapolation:.2g} times the longest observed L = "
                f"{found.longest_cumulative_lr:.3g}: nothing was seen to survive that far.",
            )
        )
    weak = [other.run for other in found.influences if not other.reliable]
    if weak:
        said.append(
            Finding(
                code="influence_rough",
                sentence=f"What changes without {', '.join(weak)} is rough: hardly any draw agrees with leaving it out "
                "(reweighted draws too few).",
            )
        )
    return said
