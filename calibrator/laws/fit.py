"""Runs with verdicts in, one fitted stratum for each setting out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from calibrator.laws import findings, hypotheses
from calibrator.laws.boundaries import CEILING, CONSTANT, NAMES, POWER
from calibrator.laws.evidence import MIN_EVENTS, Evidence, evidence, realised_intervals, seen_pairs
from calibrator.laws.fitted import FittedStratum
from calibrator.laws.identify import identifiable, refusal
from calibrator.laws.maximum import maximum_likelihood
from calibrator.laws.naive import logistic_boundary, naive_model
from calibrator.laws.observations import Observations, observe, untimed
from calibrator.laws.posterior import Floats, Posterior, interval, log_eta_max, prone_probability, rounded
from calibrator.laws.priors import Scales, scales
from calibrator.laws.solve import Solution, extended_starts, first_starts, is_large, resample, solve
from calibrator.laws.types import (
    BoundaryFit,
    BoundaryModel,
    BudgetFit,
    Estimate,
    EtaMax,
    Finding,
    LawTest,
    MaximumLikelihood,
    Run,
    StratumFit,
)

__all__ = ["FittedStratum", "design_posterior", "fit_runs"]

FEW_POINTS = 1024
"""Sampling points of a side question: enough for the two digits that its sentence shows."""
CEILING_SHARE = 0.05
"""Posterior weight of the ceiling below which there is no talk of deaths near it."""


def fit_runs(runs: Sequence[Run]) -> list[FittedStratum]:
    """Fit each stratum by itself, ordered by estimator and strata.

    The mixture cure model of `calibrator.laws.likelihood` under the priors of `calibrator.laws.priors`.
    Runs of different estimator or strata are never pooled. The answer does not depend on the order of
    `runs`. Caveat: the three boundaries get even prior odds, and their weights depend on the widths of the
    priors; the finding `prior_width_sensitivity` says by how much.

    Returns:
        One FittedStratum for each combination of estimator and strata, also where nothing can be said:
        then its boundary is None and its findings say why and what to run next.
    """
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], list[Run]] = {}
    for run in sorted(runs, key=_order):
        groups.setdefault(_stratum(run), []).append(run)
    return [_fit_stratum(tuple(group)) for group in groups.values()]


def design_posterior(runs: Sequence[Run]) -> Posterior | None:
    """Draws for choosing the next run of one stratum, given even where `fit_runs` refuses an answer.

    The priors are proper, so a posterior exists after any runs, if only a wide one; it must not be reported
    as a finding. None without a single run that trained.
    """
    ordered = sorted(runs, key=_order)
    observations = observe(ordered)
    if observations.events.S.size + observations.survivors.S.size == 0:
        return None
    at = scales(observations)
    return resample(solve(observations, at, first_starts(observations, at, logistic_boundary(ordered))))


def _stratum(run: Run) -> tuple[str, tuple[tuple[str, str], ...]]:
    return run.estimator, tuple(sorted(run.strata.items()))


def _order(run: Run) -> tuple[object, ...]:
    """Names are unique in a stratum; where they are not, what decides is what the run showed."""
    shown = (run.updates, run.verdict, run.cumulative_lr, run.cumulative_lr_onset_high or 0.0)
    return _stratum(run), run.effective_interval, run.learning_rate, run.seed, run.run, *shown


def _fit_stratum(runs: tuple[Run, ...]) -> FittedStratum:
    seen = evidence(runs)
    summary = StratumFit(
        estimator=runs[0].estimator,
        strata=dict(sorted(runs[0].strata.items())),
        runs=len(runs),
        events=len(seen.events),
        survivors=len(seen.survivors),
        excluded=len(seen.excluded),
        identifiable=identifiable(seen, None),
        longest_cumulative_lr=seen.longest,
        findings=findings.about_runs(seen),
    )
    if len(seen.events) < MIN_EVENTS:
        said = [*summary.findings, *refusal(seen, None)]
        naive = naive_model(logistic_boundary(runs))
        summary = _updated(summary, findings=said, naive=naive, tested=seen_pairs(seen))
        return FittedStratum(summary, None, runs)
    return _solved(summary, runs, seen)


def _solved(summary: StratumFit, runs: tuple[Run, ...], seen: Evidence) -> FittedStratum:
    observations = observe(runs)
    at = scales(observations)
    naive = logistic_boundary(runs)
    headline = solve(observations, at, first_starts(observations, at, naive))
    budget = _budget(observations, at, headline)
    known = identifiable(seen, headline)
    refused = refusal(seen, budget)
    said = [*summary.findings, *refused, *findings.about_budget(seen, budget, known)]
    summary = _updated(summary, budget=budget, naive=naive_model(naive), identifiable=known)
    if refused:
        return FittedStratum(_without_boundary(summary, seen, said), None, runs)
    boundary = _boundary(observations, at, headline)
    summary = _updated(summary, boundary=boundary, eta_max=_rows(seen, headline))
    outcomes = hypotheses.tests(seen, summary)
    said += [*hypotheses.findings(outcomes), *findings.about_boundary(seen, summary)]
    if len(seen.intervals) > 1:  # with a single interval, ceiling and staleness look the same
        budget, near = _near_ceiling(observations, at, headline, budget)
        said += findings.near_ceiling(budget, near)
    said += _sensitivities(runs, seen, observations, at, headline)
    said += [*_freed(seen, observations, at, headline, outcomes), *findings.imprecise(headline)]
    return FittedStratum(
        _updated(summary, budget=budget, tests=outcomes, findings=said), resample(headline), runs
    )


def _without_boundary(summary: StratumFit, seen: Evidence, said: list[Finding]) -> StratumFit:
    """What stays of a refused stratum: the budget, its tests, and the tested pairs by themselves."""
    outcomes = hypotheses.tests(seen, summary)
    return _updated(
        summary,
        identifiable=summary.identifiable.model_copy(update={"C": False, "alpha": False}),
        tests=outcomes,
        tested=seen_pairs(seen),
        findings=[*said, *hypotheses.findings(outcomes)],
    )


def _updated(summary: StratumFit, **values: object) -> StratumFit:
    return summary.model_copy(update=values)


def _budget(observations: Observations, at: Scales, headline: Solution) -> BudgetFit:
    """Law (ii): B and its spread at gamma = 0, beta = 1, and the two exponents when both are free."""
    free = solve(observations, at, extended_starts(headline), extended=True, most_points=2 * FEW_POINTS)
    draws, weight = headline.pooled
    return BudgetFit(
        B=_exp(draws.log_B, weight),
        beta=interval(free.beta[free.chosen], weights=free.weights[free.chosen]),
        gamma=interval(free.gamma[free.chosen], weights=free.weights[free.chosen]),
        sigma=interval(draws.sigma_B, weights=weight),
    )


def _near_ceiling(
    observations: Observations, at: Scales, headline: Solution, budget: BudgetFit
) -> tuple[BudgetFit, int]:
    """Add B without the timing of deaths that gradient noise alone explains, and count them.

    Such a run is more likely than not prone even at S = 1 under the ceiling boundary. It still counts as
    dead, only not when. Nothing is added without such deaths, or when too few others are left.
    """
    events = observations.events
    if headline.share[CEILING] < CEILING_SHARE:
        return budget, 0
    on_policy = prone_probability(headline.draws[CEILING], np.ones(events.S.size), np.exp(events.log_eta))
    near = on_policy @ headline.weights[CEILING] > 0.5
    count = int(events.count[near].sum())
    if count == 0 or events.count.sum() - count < MIN_EVENTS:
        return budget, count
    start = {CEILING: headline.modes[CEILING]}
    rest = solve(untimed(observations, near), at, start, most_points=FEW_POINTS)
    without = _exp(rest.draws[CEILING].log_B, rest.weights[CEILING])
    return budget.model_copy(update={"B_without_ceiling_deaths": without}), count


def _sensitivities(
    runs: tuple[Run, ...], seen: Evidence, observations: Observations, at: Scales, headline: Solution
) -> list[Finding]:
    """What changes with wider priors (unless the runs swamp them), and with degraded runs as deaths."""
    said = []
    if not is_large(observations):
        wide = solve(observations, at, headline.modes, width=2.0, most_points=FEW_POINTS)
        said.append(findings.prior_width(seen, headline, wide))
    if seen.degraded:
        dead = observe(runs, degraded_dies=True)
        other = solve(dead, at, headline.modes, most_points=FEW_POINTS)
        said.append(findings.degraded_as_deaths(seen, headline, other))
    return said


def _freed(
    seen: Evidence, observations: Observations, at: Scales, headline: Solution, outcomes: list[LawTest]
) -> list[Finding]:
    """What the boundary would be if the exponents that the runs reject were free.

    Advice keeps B alone: with beta free a low rate may collapse at an L that no run has reached, and the boundary of
    runs without end is open downwards. The reader is told by how much.
    """
    rejected = [test for test in outcomes if test.outcome == "rejected" and test.law != "alpha = 1"]
    if not rejected or is_large(observations):
        return []
    starts = {b: [np.append(modes[0], [0.0, 0.0])] for b, modes in headline.modes.items()}
    free = solve(observations, at, starts, extended=True, most_points=2 * FEW_POINTS)
    return [findings.exponents_freed(seen, rejected, headline, free)]


def _boundary(observations: Observations, at: Scales, solution: Solution) -> BoundaryFit:
    models = {
        NAMES[b]: _model(solution, b, maximum_likelihood(observations, at, b, start=solution.modes[b][0]))
        for b in (POWER, CEILING, CONSTANT)
    }
    return BoundaryFit(chosen=NAMES[solution.chosen], models=models)


def _model(solution: Solution, boundary: int, best: MaximumLikelihood) -> BoundaryModel:
    draws, weight = solution.draws[boundary], solution.weights[boundary]
    return BoundaryModel(
        weight=rounded(solution.share[boundary]),
        log_evidence=rounded(solution.log_evidence[boundary]),
        sigma=interval(draws.sigma_C, weights=weight),
        C=None if boundary == CONSTANT else _exp(draws.log_C, weight),
        alpha=interval(draws.alpha, weights=weight) if boundary == POWER else None,
        eta_0=None if boundary == POWER else _exp(draws.log_eta_0, weight),
        maximum_likelihood=best,
    )


def _rows(seen: Evidence, solution: Solution) -> list[EtaMax]:
    """eta_max at each swept interval, at the largest S_eff that runs with that interval realised."""
    realised = realised_intervals(seen.used)
    draws, weight = solution.pooled
    return [
        EtaMax(
            sync_interval=S,
            effective_interval=realised[S],
            eta_max=_exp(log_eta_max(draws, realised[S]), weight),
        )
        for S in sorted(realised)
    ]


def _exp(log_values: ArrayLike, weights: Floats) -> Estimate:
    return interval(np.exp(log_values), weights=weights)
