"""What the runs can and cannot identify, and the refusals."""

from __future__ import annotations

import math

import numpy as np

from calibrator.laws.boundaries import CONSTANT, POWER
from calibrator.laws.evidence import LONGER, MIN_EVENTS, Evidence, exposure, extension, next_run
from calibrator.laws.naive import Z
from calibrator.laws.posterior import Floats
from calibrator.laws.priors import ALPHA_SD, LOCATION_SD
from calibrator.laws.solve import Solution
from calibrator.laws.types import BudgetFit, Finding, Identifiable, Run
from calibrator.wording import plural

NARROWED = 0.5
"""A parameter is identified when the runs shrink the prior's standard deviation at least to this share."""


def identifiable(seen: Evidence, solution: Solution | None) -> Identifiable:
    """Whether the runs, rather than the priors, determine C, alpha and B."""
    if solution is None:
        return Identifiable(C=False, alpha=False, B=False)
    draws, weight = solution.pooled
    varied = len(seen.rates) > 1 and len(seen.intervals) > 1
    power, alpha_weight = solution.draws[POWER], solution.weights[POWER]
    return Identifiable(
        C=varied and _threshold_known(seen, solution),
        alpha=varied and _sd(power.alpha, alpha_weight) < NARROWED * ALPHA_SD,
        B=len(seen.events) >= MIN_EVENTS and _sd(draws.log_B, weight) < NARROWED * LOCATION_SD,
    )


def refusal(seen: Evidence, budget: BudgetFit | None) -> list[Finding]:
    """Why no boundary can be given, with the run that would settle it; empty when one can."""
    if len(seen.events) < MIN_EVENTS or budget is None:
        return [_too_few_events(seen)]
    if not seen.survivors:
        return [_no_survivors(seen, budget)]
    if all(run.cumulative_lr < budget.B.estimate for run in seen.survivors):
        return [_shorter_than_budget(seen, budget)]
    if len(seen.rates) == 1 and len(seen.intervals) == 1:
        return [_one_setting(seen, budget)]
    return []


def settled(budget: BudgetFit) -> float:
    """L by which 95 % of the prone runs have collapsed, at the upper end of B."""
    return budget.B.high * math.exp(Z * budget.sigma.estimate)


def _threshold_known(seen: Evidence, solution: Solution) -> bool:
    if solution.chosen == CONSTANT:
        return False
    prior_sd = LOCATION_SD
    if solution.chosen == POWER:
        log_S = float(np.mean([math.log(run.effective_interval) for run in seen.used]))
        prior_sd = math.hypot(LOCATION_SD, ALPHA_SD * log_S)
    return _sd(solution.draws[solution.chosen].log_C, solution.weights[solution.chosen]) < NARROWED * prior_sd


def _sd(values: Floats, weight: Floats) -> float:
    return math.sqrt(float(weight @ (values - weight @ values) ** 2))


def _too_few_events(seen: Evidence) -> Finding:
    if not seen.used:
        return Finding(code="no_runs", sentence="No run trained and was judged, so nothing can be said.")
    return _some_events(seen) if seen.events else _no_events(seen)


def _no_events(seen: Evidence) -> Finding:
    first = max(seen.survivors, key=exposure)
    alike = [
        run
        for run in seen.survivors
        if (run.effective_interval, run.learning_rate) == (first.effective_interval, first.learning_rate)
    ]
    chance = 1 - 0.1 ** (1 / len(alike))
    return Finding(
        code="no_events",
        sentence=(
            f"{_none_of(len(seen.survivors))} collapsed, so the budget B is unknown, no run is known "
            f"to have been long enough to test the boundary, and there is no bound on C. What can be said: "
            f"at S = {first.sync_interval}, eta = {first.learning_rate:.3g} the chance of a collapse by "
            f"L = {min(run.cumulative_lr for run in alike):.3g} is below {chance:.2f} (90 %, one-sided, from "
            f"{plural(len(alike), 'run')}). {extension(first, LONGER * seen.longest)} If it survives that, raise eta "
            f"{LONGER}-fold."
        ),
    )


def _some_events(seen: Evidence) -> Finding:
    reach = LONGER * max(_onset(run) for run in seen.events)
    if seen.survivors:
        first = max(seen.survivors, key=exposure)
        run = next_run(first.sync_interval, 2 * first.learning_rate, reach)
    else:
        last = min(seen.events, key=exposure)
        run = next_run(last.sync_interval, last.learning_rate / 2, reach)
    return Finding(
        code="too_few_events",
        sentence=(
            f"Only {len(seen.events)} run(s) collapsed; with fewer than {MIN_EVENTS} the spread between runs "
            f"would come from the priors alone, so neither boundary nor budget is given. {run}"
        ),
    )


def _no_survivors(seen: Evidence, budget: BudgetFit) -> Finding:
    last = min(seen.events, key=exposure)
    return Finding(
        code="no_survivors",
        sentence=(
            f"{_all_of(len(seen.events))} collapsed, so the boundary lies somewhere below the tested rates "
            f"and only the budget B is given. "
            f"{next_run(last.sync_interval, last.learning_rate / LONGER, settled(budget))}"
        ),
    )


def _shorter_than_budget(seen: Evidence, budget: BudgetFit) -> Finding:
    longest = max(run.cumulative_lr for run in seen.survivors)

    def missing(run: Run) -> float:
        return (settled(budget) - run.cumulative_lr) / run.learning_rate

    cheapest = min(seen.survivors, key=missing)
    return Finding(
        code="runs_shorter_than_budget",
        sentence=(
            f"Every surviving run stopped by L = {longest:.3g}, before the budget B = {budget.B.estimate:.3g}"
            f" ({budget.B.low:.3g} to {budget.B.high:.3g}): none was tested, so nothing bounds the boundary "
            f"from below. {extension(cheapest, settled(budget))}"
        ),
    )


def _one_setting(seen: Evidence, budget: BudgetFit) -> Finding:
    run = seen.used[0]
    return Finding(
        code="one_setting",
        sentence=(
            f"All runs have S = {run.sync_interval} and eta = {run.learning_rate:.3g}: "
            f"{len(seen.events)} of {len(seen.used)} collapsed, which places no boundary in S or eta. "
            f"{next_run(run.sync_interval, run.learning_rate / 2, settled(budget))}"
        ),
    )


def _onset(run: Run) -> float:
    return run.cumulative_lr if run.cumulative_lr_onset_high is None else run.cumulative_lr_onset_high


def _none_of(runs: int) -> str:
    return f"None of the {runs} runs" if runs > 1 else "The only run has not"


def _all_of(runs: int) -> str:
    return f"All {runs} runs" if runs > 1 else "The only run"
