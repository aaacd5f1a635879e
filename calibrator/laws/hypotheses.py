"""Whether the runs reject the published exponents: alpha = 1, beta = 1 and gamma = 0, each in a plain sentence.

A value is rejected when it lies outside the 90 % credible interval of its exponent.
"""

from __future__ import annotations

import math

from calibrator.laws.evidence import Evidence
from calibrator.laws.types import BoundaryFit, BudgetFit, Estimate, Finding, LawTest, StratumFit

CODES = {
    "alpha = 1": {"rejected": "alpha_not_one"},
    "beta = 1": {"rejected": "beta_not_one", "untested": "beta_not_tested"},
    "gamma = 0": {"rejected": "gamma_not_zero", "untested": "gamma_not_tested"},
}
"""Findings that follow from an outcome. An untested alpha is a finding of the boundary already."""


def tests(seen: Evidence, fit: StratumFit) -> list[LawTest]:
    """The three tests of a stratum, as far as it has a boundary and a budget."""
    return [
        *([_alpha(seen, fit, fit.boundary)] if fit.boundary is not None else []),
        *([_beta(seen, fit.budget), _gamma(seen, fit.budget)] if fit.budget is not None else []),
    ]


def findings(outcomes: list[LawTest]) -> list[Finding]:
    """What of the tests a reader must know: rejected laws, and laws that had to be assumed."""
    found = [(CODES[test.law].get(test.outcome), test.sentence) for test in outcomes]
    return [Finding(code=code, sentence=sentence) for code, sentence in found if code is not None]


def _alpha(seen: Evidence, fit: StratumFit, boundary: BoundaryFit) -> LawTest:
    law = "alpha = 1"
    alpha = boundary.models["power"].alpha
    if alpha is None or len(seen.intervals) == 1 or len(seen.rates) == 1:
        what = "S_eff" if len(seen.intervals) == 1 else "learning rate"
        return _untested(law, f"alpha = 1 cannot be tested: all runs have one {what}.")
    if not contains(alpha, 1.0):
        return LawTest(law=law, outcome="rejected", sentence=_alpha_rejected(boundary, alpha))
    if not fit.identifiable.alpha:
        return _untested(
            law, f"alpha = 1 is not really tested: the runs hardly narrow alpha, {spell(alpha, 1.0)}."
        )
    return _kept(law, f"alpha = 1 agrees with the runs: under the power law alpha is {spell(alpha, 1.0)}.")


def _alpha_rejected(boundary: BoundaryFit, alpha: Estimate) -> str:
    text = f"alpha = 1 is rejected for the power law: {spell(alpha, 1.0)}."
    if boundary.chosen == "ceiling":
        text += (
            f" The ceiling has more weight ({boundary.models['ceiling'].weight:.2f}): beyond eta_0 it falls "
            f"as 1/S, and the power law's smaller alpha averages over the bend."
        )
    return text


def _beta(seen: Evidence, budget: BudgetFit) -> LawTest:
    law = "beta = 1"
    if len({run.learning_rate for run in seen.events}) < 2:
        text = (
            "All collapsed runs had one learning rate, so beta = 1 (onset at L = B at any rate) is assumed."
        )
        return _untested(law, text)
    if contains(budget.beta, 1.0):
        return _kept(
            law, f"beta = 1 (onset after B/eta updates) agrees with the runs: {spell(budget.beta, 1.0)}."
        )
    eta = _geometric_mean([run.learning_rate for run in seen.events])
    return LawTest(
        law=law,
        outcome="rejected",
        sentence=f"beta = 1 is rejected: {spell(budget.beta, 1.0)}. B holds near eta = {eta:.2g}, the middle of the "
        f"collapsed runs; at other rates the collapse time follows eta^-beta.",
    )


def _gamma(seen: Evidence, budget: BudgetFit) -> LawTest:
    law = "gamma = 0"
    if len({run.effective_interval for run in seen.events}) < 2:
        return _untested(law, "All collapsed runs had one S, so gamma = 0 (B whatever S) is assumed.")
    if contains(budget.gamma, 0.0):
        return _kept(
            law, f"gamma = 0 (the same B at every S) agrees with the runs: {spell(budget.gamma, 0.0)}."
        )
    S = _geometric_mean([run.effective_interval for run in seen.events])
    return LawTest(
        law=law,
        outcome="rejected",
        sentence=f"gamma = 0 is rejected: {spell(budget.gamma, 0.0)}. B depends on S and holds near S = {S:.2g}.",
    )


def spell(e: Estimate, tested: float | None = None) -> str:
    """`0.96 (0.55 to 1.3)`; with as many digits as show on which side of an end the `tested` value lies."""
    for digits in range(2, 7):
        shown = [f"{value:.{digits}g}" for value in (e.estimate, e.low, e.high)]
        if tested is None or (float(shown[1]) <= tested <= float(shown[2])) == contains(e, tested):
            break
    return f"{shown[0]} ({shown[1]} to {shown[2]})"


def contains(e: Estimate, value: float) -> bool:
    """Whether the interval holds the value."""
    return e.low <= value <= e.high


def _kept(law: str, sentence: str) -> LawTest:
    return LawTest(law=law, outcome="kept", sentence=sentence)


def _untested(law: str, sentence: str) -> LawTest:
    return LawTest(law=law, outcome="untested", sentence=sentence)


def _geometric_mean(values: list[float] | list[int]) -> float:
    return math.exp(sum(math.log(value) for value in values) / len(values))
