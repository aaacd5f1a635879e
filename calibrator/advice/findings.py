"""Sentences that stand beside a recommendation, each with a stable code."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from calibrator.advice.frontier import USEFUL_SHARE, lag_of
from calibrator.advice.request import AdviceRequest
from calibrator.advice.types import FrontierRow
from calibrator.laws.evidence import round_up
from calibrator.laws.types import Finding, Run, StratumFit
from calibrator.wording import plural


def rate_findings(
    chosen: FrontierRow, runs: Sequence[Run], effective_interval: int, stable: float, request: AdviceRequest
) -> list[Finding]:
    """How the chosen rate stands to the tested rates and to `stable`, the limit of the rule `stable`."""
    found = []
    eta = chosen.learning_rate
    here = [run.learning_rate for run in runs if run.effective_interval == effective_interval]
    if here and eta < min(here):
        found.append(
            Finding(
                code="rate_below_tested",
                sentence=f"The smallest rate tested at S_eff = {effective_interval} was {min(here):.2g}; "
                f"{eta:.2g} lies below it and rests on the fitted boundary.",
            )
        )
    largest = max(run.learning_rate for run in runs)
    if chosen.max_learning_rate > largest:
        found.append(
            Finding(
                code="rate_capped_at_tested",
                sentence=f"The rule would allow {chosen.max_learning_rate:.2g}, but no run went above "
                f"{largest:.2g}: the recommendation stops there.",
            )
        )
    if request.rule == "budget-limited" and eta > stable:
        found.append(
            Finding(
                code="collapses_at_budget",
                sentence=f"{eta:.2g} lies above the stable limit {stable:.2g}: the run is expected to "
                f"collapse near L = B if it is extended beyond {request.horizon} updates.",
            )
        )
    return found


def interval_findings(chosen: FrontierRow, covered: Collection[int], request: AdviceRequest) -> list[Finding]:
    """Which swept S_eff have no row (`covered` have one), and for which schedule the answer holds."""
    found = []
    if missing := sorted(set(request.sync_intervals) - set(covered)):
        found.append(
            Finding(
                code="interval_left_out",
                sentence=f"S_eff = {listed(missing)} is not in the frontier: outside the tested intervals, "
                f"not below the horizon, or without an interval of its own under {request.schedule}.",
            )
        )
    if len(covered) == 1:
        found.append(
            Finding(
                code="one_interval",
                sentence="Only one interval lies within what was tested: it was compared with no other.",
            )
        )
    if request.schedule == "overlap":
        found.append(
            Finding(
                code="schedule_converted",
                sentence="The laws were fitted in lockstep: under overlap with "
                f"{request.queued_cycles} queued cycle(s) S = {chosen.sync_interval}, with lags up to "
                f"{lag_of(chosen, request)} updates, has no larger mean lag.",
            )
        )
    if lag_of(chosen, request) == 0:
        found.append(
            Finding(
                code="synchronous_only",
                sentence="No asynchronous interval is both safe and useful: S = 1 trains synchronously.",
            )
        )
    return found


FAR = 3.0
"""Factor beyond the longest observed L from which the answer says at length what it rests on."""


def horizon_findings(
    extrapolation: float, floor: float | None, request: AdviceRequest, chosen: FrontierRow, fit: StratumFit
) -> list[Finding]:
    """How far the answer reaches, and what the floor and the cost rest on."""
    found = []
    if extrapolation > 1:
        found.append(Finding(code="extrapolates", sentence=_reach(extrapolation, request, chosen, fit)))
    if floor is None:
        found.append(
            Finding(
                code="floor_unknown",
                sentence="No gain of a stable run is known, so neither is the rate below which a run learns "
                "nothing useful.",
            )
        )
    else:
        found.append(
            Finding(
                code="floor_assumed",
                sentence=f"Rates below {floor:.2g} count as useless: they do not reach the smallest L at "
                f"which a stable run had made {USEFUL_SHARE:.0%} of the best measured gain.",
            )
        )
    if request.cost is not None and request.cost.origin == "assumed" and request.objective == "time":
        found.append(
            Finding(code="cost_assumed", sentence="Seconds per update are assumed, not measured here.")
        )
    return found


def _reach(extrapolation: float, request: AdviceRequest, chosen: FrontierRow, fit: StratumFit) -> str:
    longest = fit.longest_cumulative_lr
    said = (
        f"At the horizon L is {extrapolation:.2g} times the longest L observed ({longest:.3g}): whether "
        "runs collapse beyond that was never seen."
    )
    if extrapolation < FAR or fit.budget is None:
        return said
    B, passed = fit.budget.B, f"{plural(fit.survivors, 'run')} survived, {fit.events} collapsed"
    rate = chosen.learning_rate
    return (
        f"{said} The answer rests on the law alone: {passed}, and those that do collapse did so near L = B = "
        f"{B.estimate:.2g} ({B.low:.2g} to {B.high:.2g}), which is {longest / B.estimate:.2g} times less than what "
        f"was watched; it is assumed that a run which passes that stays stable for the other "
        f"{100 * (1 - 1 / extrapolation):.0f} % of its length. A slow decline that only long runs show would not "
        f"have been seen. To reach further, run S = {chosen.sync_interval}, eta = {rate:.2g} for longer than "
        f"{round_up(longest / rate)} updates."
    )


def unmeasured_findings(request: AdviceRequest) -> list[Finding]:
    """What somebody else's runs do not tell: G, epsilon and seconds."""
    found = []
    unknown = [name for name in ("group_size", "epsilon") if getattr(request, name) is None]
    if unknown:
        symbols = " and ".join({"group_size": "G", "epsilon": "epsilon"}[name] for name in unknown)
        found.append(
            Finding(
                code="settings_not_recorded",
                sentence=f"The runs do not tell {symbols}: keep what they were made with; the laws hold for nothing "
                "else.",
            )
        )
    if request.cost is None:
        found.append(
            Finding(
                code="seconds_not_measured",
                sentence="Seconds per update were never measured, so intervals are compared by progress per update, "
                "which favours small S; the table of intervals shows what the others allow.",
            )
        )
    return found


def listed(intervals: Sequence[int]) -> str:
    return ", ".join(str(interval) for interval in intervals)
