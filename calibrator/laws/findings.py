"""Sentences about a fit, each with a stable code and, where something is missing, the run to make next."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from calibrator.laws.boundaries import NAMES
from calibrator.laws.evidence import DECIDED, FEW_EVENTS, LONGER, Evidence, exposure, next_run
from calibrator.laws.hypotheses import spell
from calibrator.laws.identify import settled
from calibrator.laws.posterior import interval, log_eta_max
from calibrator.laws.sampling import LEAST
from calibrator.laws.solve import Solution
from calibrator.laws.types import BoundaryFit, BudgetFit, EtaMax, Finding, Identifiable, LawTest, StratumFit
from calibrator.wording import plural

BLURRED = 0.8
"""sigma_C, in log eta, from which the boundary is called blurred; its prior exceeds that once in twenty."""
NEGLIGIBLE = 0.01
"""Posterior weight below which a boundary's own precision does not matter."""


def about_runs(seen: Evidence) -> list[Finding]:
    """What was left out, and events whose onset is not known."""
    said = []
    if seen.excluded:
        names = ", ".join(f"{run.run} ({run.verdict})" for run in seen.excluded[:10])
        more = f" and {len(seen.excluded) - 10} more" if len(seen.excluded) > 10 else ""
        said.append(_finding("excluded_runs", f"{len(seen.excluded)} run(s) left out: {names}{more}."))
    unknown = [r for r in seen.events if r.cumulative_lr_onset_high is None and r.onset_high is None]
    if unknown:
        said.append(
            _finding(
                "onset_unknown",
                f"{len(unknown)} collapsed run(s) have no onset and enter as collapsed at some L of the run.",
            )
        )
    return said


def about_budget(seen: Evidence, budget: BudgetFit, known: Identifiable) -> list[Finding]:
    """Law (ii): onsets too coarse, few events, survivors that were not tested."""
    said: list[Finding] = []
    if not known.B:
        said.append(_budget_open(seen, budget))
    if len(seen.events) < FEW_EVENTS:
        said.append(
            _finding(
                "few_events",
                f"Only {plural(len(seen.events), 'run')} collapsed: the spreads rest largely on their priors.",
            )
        )
    short = [run for run in seen.survivors if run.cumulative_lr < budget.B.estimate]
    if short and len(short) < len(seen.survivors):
        said.append(
            _finding(
                "untested_survivors",
                f"{len(short)} of {len(seen.survivors)} surviving runs stopped before L = B "
                f"({budget.B.estimate:.3g}) and say little about the boundary.",
            )
        )
    return said


def about_boundary(seen: Evidence, fit: StratumFit) -> list[Finding]:
    """Law (i): which boundary, and what one rate or one interval leaves open."""
    if fit.boundary is None or fit.budget is None:
        return []
    if len(seen.intervals) == 1:
        return [_one_sync_interval(seen, fit, fit.budget)]
    if len(seen.rates) == 1:
        return [_one_learning_rate(seen, fit.budget)]
    said = [*_which_boundary(seen, fit.boundary), *_blurred(fit.boundary)]
    if not (fit.identifiable.alpha and (fit.identifiable.C or fit.boundary.chosen == "constant")):
        said.append(_slope_open(seen, fit, fit.boundary, fit.budget))
    return said


def near_ceiling(budget: BudgetFit, count: int) -> list[Finding]:
    """Deaths that gradient noise alone explains, and B without their onsets."""
    if not count:
        return []
    start = (
        f"Under the ceiling boundary {count} collapse(s) lie above eta_0, where gradient noise kills even at "
        f"S = 1; "
    )
    other = budget.B_without_ceiling_deaths
    if other is None:
        return [_finding("ceiling_deaths", start + "too few others are left to give B without them.")]
    text = f"{start}without their onsets B is {spell(other)} instead of {spell(budget.B)}."
    return [_finding("ceiling_deaths", text)]


def prior_width(seen: Evidence, headline: Solution, wide: Solution) -> Finding:
    """Sensitivity to the widths of the priors."""
    return _finding(
        "prior_width_sensitivity",
        f"With all priors twice as wide {_change(seen, headline, wide)}, and the weights of power, ceiling "
        f"and constant from {_shares(headline)} to {_shares(wide)}.",
    )


def degraded_as_deaths(seen: Evidence, headline: Solution, other: Solution) -> Finding:
    """Sensitivity to counting degraded runs as deaths."""
    names = ", ".join(run.run for run in seen.degraded[:10])
    return _finding(
        "degraded_sensitivity",
        f"{len(seen.degraded)} degraded run(s) count as survivors ({names}); counted as collapsed, "
        f"{_change(seen, headline, other)}.",
    )


def exponents_freed(
    seen: Evidence, rejected: Sequence[LawTest], headline: Solution, free: Solution
) -> Finding:
    """What rejected exponents of law (ii) do to the boundary."""
    laws = " and ".join(test.law for test in rejected) + (" are" if len(rejected) > 1 else " is")
    return _finding(
        "exponents_freed",
        f"The advice keeps one B although {laws} rejected; with beta and gamma free "
        f"{_change(seen, headline, free)}. The lower ends differ where collapses come at larger L than the survivors "
        f"reached: a confirmation at the full length is the test.",
    )


def imprecise(headline: Solution) -> list[Finding]:
    """Sampling that did not converge for a boundary that matters."""
    poor = [b for b, e in headline.effective.items() if e < LEAST and headline.share[b] > NEGLIGIBLE]
    if not poor:
        return []
    names = ", ".join(NAMES[b] for b in poor)
    return [
        _finding("imprecise_sampling", f"The posterior of {names} rests on fewer than {LEAST:.0f} points.")
    ]


def _budget_open(seen: Evidence, budget: BudgetFit) -> Finding:
    first = min(seen.events, key=exposure)
    return _finding(
        "budget_not_identified",
        f"The onsets are too coarse to narrow B ({spell(budget.B)}): they are known to within one "
        f"synchronization, and S eta is not small against B. "
        f"{next_run(1, first.learning_rate, settled(budget))}",
    )


def _which_boundary(seen: Evidence, boundary: BoundaryFit) -> list[Finding]:
    weights = {name: model.weight for name, model in boundary.models.items()}
    said = []
    listed = ", ".join(f"{name} {weight:.2f}" for name, weight in weights.items())
    if boundary.chosen == "constant":
        said.append(
            _finding(
                "staleness_does_not_matter",
                f"Between S_eff = {min(seen.intervals)} and {max(seen.intervals)} a constant boundary "
                f"describes the runs best (posterior weights: {listed}); nothing follows for larger S.",
            )
        )
    if weights[boundary.chosen] < DECIDED:
        text = f"The runs do not tell the boundaries apart (posterior weights: {listed}); advice averages."
        return [*said, _finding("boundary_undecided", text)]
    return [*said, _finding("boundary_decided", f"Posterior weights of the boundaries: {listed}.")]


def _blurred(boundary: BoundaryFit) -> list[Finding]:
    sigma = boundary.models[boundary.chosen].sigma
    if sigma.estimate < BLURRED:
        return []
    return [
        _finding(
            "boundary_blurred",
            f"Whether a run collapses follows S and eta only loosely: the boundary differs between runs by a "
            f"factor of {math.exp(sigma.estimate):.2g} (one standard deviation). Repeat runs with other "
            f"seeds, and look for a setting that differs between them.",
        )
    ]


def _slope_open(seen: Evidence, fit: StratumFit, boundary: BoundaryFit, budget: BudgetFit) -> Finding:
    S = LONGER * max(run.sync_interval for run in seen.used)
    open_ = [name for name in ("C", "alpha") if not getattr(fit.identifiable, name)]
    values = {"C": boundary.models[boundary.chosen].C, "alpha": boundary.models["power"].alpha}
    listed = " and ".join(f"{name} ({spell(e)})" for name in open_ if (e := values[name]) is not None)
    return _finding(
        "slope_not_identified",
        f"The runs hardly narrow {listed}: larger S rests on the priors. "
        f"{next_run(S, fit.eta_max[-1].eta_max.estimate, settled(budget))}",
    )


def _one_sync_interval(seen: Evidence, fit: StratumFit, budget: BudgetFit) -> Finding:
    S = seen.used[0].sync_interval
    row: EtaMax = fit.eta_max[-1]
    return _finding(
        "one_sync_interval",
        f"All runs have S_eff = {seen.used[0].effective_interval}: eta_max = {spell(row.eta_max)} holds "
        f"there, and how it depends on S is unknown. "
        f"{next_run(LONGER * S, row.eta_max.estimate, settled(budget))}",
    )


def _one_learning_rate(seen: Evidence, budget: BudgetFit) -> Finding:
    eta = seen.used[0].learning_rate
    last = max(seen.events, key=exposure)
    return _finding(
        "one_learning_rate",
        f"All runs have eta = {eta:.3g}: they show which S this rate tolerates, but not whether S eta or S "
        f"alone decides; C and other rates rest on the priors. "
        f"{next_run(last.sync_interval, eta / LONGER, settled(budget))}",
    )


def _change(seen: Evidence, before: Solution, after: Solution) -> str:
    S = max(seen.intervals)
    (old, old_weight), (new, new_weight) = before.pooled, after.pooled
    height = [
        interval(np.exp(log_eta_max(d, S)), weights=w) for d, w in ((old, old_weight), (new, new_weight))
    ]
    B = [interval(np.exp(d.log_B), weights=w) for d, w in ((old, old_weight), (new, new_weight))]
    return (
        f"eta_max at S_eff = {S} goes from {spell(height[0])} to {spell(height[1])}, "
        f"B from {spell(B[0])} to {spell(B[1])}"
    )


def _shares(solution: Solution) -> str:
    return " / ".join(f"{share:.2f}" for share in solution.share.values())


def _finding(code: str, sentence: str) -> Finding:
    return Finding(code=code, sentence=sentence)
