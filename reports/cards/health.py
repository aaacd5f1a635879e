"""Health checks: what a careful colleague would ask, each PASS, WARN or FAIL, followed by the findings."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from calibrator.advice.suggest import CAPPED
from calibrator.advice.types import Recommendation
from calibrator.laws.evidence import DECIDED, FEW_EVENTS
from calibrator.laws.types import Finding, StratumFit
from calibrator.verdicts.types import Verdict
from reports.cards.advice import confirmation_text
from reports.cards.blocks import Card, Check, Checks, Paragraph, Status
from reports.cards.recorded import recorded_checks, untested_checks
from reports.numbers import LR_UPDATES, count, name, percent, plural, significant
from reports.view import RunView, StudyView, stratum_key

FLOOR_SEEN, FLOOR_TOO_HIGH = 0.1, 0.5
"""Share of log(1 + epsilon) from which the engine's mismatch is a warning, and from which the cap acts on noise."""


def health_card(view: StudyView) -> Card:
    checks = all_checks(view)
    if not view.runs and not checks:
        return Card("health", "Health checks", (Paragraph("There is nothing to check: no run was judged."),))
    return Card("health", "Health checks", (Paragraph(summary(checks)), Checks(checks)))


def summary(checks: tuple[Check, ...]) -> str:
    statuses = [c.status for c in checks]
    said = [
        f"{statuses.count('PASS')} pass",
        f"{statuses.count('WARN')} warn",
        f"{statuses.count('FAIL')} fail",
    ]
    said += [f"{statuses.count('NOTE')} to note"] if "NOTE" in statuses else []
    return f"{', '.join(said)}."


def all_checks(view: StudyView) -> tuple[Check, ...]:
    """Own checks and findings, the worst first."""
    rec = view.recommendation
    own = [*_advice_checks(rec), *_run_checks(view)] if rec is not None else _run_checks(view)
    if view.unfinished:
        own.append(Check("WARN", "unfinished", view.unfinished))
    own += [*mismatch_checks(view), *recorded_checks(view), *untested_checks(view), *_law_tests(view)]
    return tuple(sorted([*own, *_law_checks(view), *finding_checks(view)], key=severity))


OUTCOMES: dict[str, Status] = {"kept": "PASS", "rejected": "NOTE", "untested": "WARN"}


def _law_tests(view: StudyView) -> list[Check]:
    """alpha = 1, beta = 1, gamma = 0, by stratum. Advice never assumes a law that the runs reject."""
    several = len(view.fit.strata) > 1
    said = {f.sentence for stratum in view.fit.strata for f in stratum.findings}
    return [
        Check(
            OUTCOMES[test.outcome],
            f"law_{test.outcome}",
            f"{view.label(stratum_key(stratum.estimator, stratum.strata))}: {test.sentence}"
            if several
            else test.sentence,
        )
        for stratum in view.fit.strata
        for test in stratum.tests
        if test.sentence not in said
    ]


def _uncovered(checks: list[Check], findings: list[Finding]) -> list[Check]:
    said = {f.code for f in findings}
    return [c for c in checks if not COVERED_BY.get(c.code, set()) & said]


def severity(check: Check) -> int:
    """Order of checks: the worst first."""
    return ("FAIL", "WARN", "NOTE", "PASS").index(check.status)


def _advice_checks(rec: Recommendation) -> list[Check]:
    factor = rec.extrapolation
    result, sentence = confirmation_text(rec.confirmation)
    checks = [
        Check(
            "PASS" if factor <= 1 else "WARN",
            "extrapolation",
            f"eta T reaches {significant(factor)} times the longest observed cumulative learning rate.",
        ),
        Check(_confirmed(rec), "confirmation", f"Confirmation: {result}; {sentence}.", "measured"),
    ]
    return _uncovered(checks, rec.findings)


def _confirmed(rec: Recommendation) -> Status:
    if rec.confirmation is None:
        return "WARN"
    return "PASS" if all(v == Verdict.STABLE for v in rec.confirmation.verdicts) else "FAIL"


def _run_checks(view: StudyView) -> list[Check]:
    if not view.runs:
        return []
    verdicts = [r.verdict.verdict for r in view.runs]
    unsettled = [v for v in verdicts if v in (Verdict.INCONCLUSIVE, Verdict.UNTRAINED, Verdict.INTERRUPTED)]
    degraded = verdicts.count(Verdict.DEGRADED)
    unread = sum(r.curve is None for r in view.runs)
    warned = sum(bool(r.verdict.warnings) for r in view.runs)
    settled = f"{count(len(verdicts) - len(unsettled))} of {plural(len(verdicts), 'run')}"
    checks = [
        Check(
            "WARN" if len(unsettled) > len(verdicts) / 4 else "PASS",
            "verdicts",
            f"{settled} have a verdict that settles something; {count(len(unsettled))} are inconclusive, "
            "untrained or interrupted.",
        )
    ]
    if degraded:
        checks.append(Check("WARN", "degraded", f"{plural(degraded, 'run')} degraded without a cliff."))
    if unread:
        checks.append(Check("WARN", "logs", f"The log of {plural(unread, 'run')} could not be read."))
    if warned:
        checks.append(Check("WARN", "warnings", f"{plural(warned, 'run')} with warnings, listed below."))
    return _uncovered(checks, [f for s in view.fit.strata for f in s.findings])


@dataclass(frozen=True)
class Mismatch:
    """Engine against learner for the same weights in one run: medians over the rows on which it was measured."""

    per_token: float
    """Mean |delta logprob|, nats."""
    length: float
    """Response tokens."""
    per_trajectory: float
    """Mean |sum of the deltas|, nats."""
    in_ratios: bool
    """False where mu was recomputed, so that the ratios are free of it."""

    @property
    def floor(self) -> float:
        """Log-ratio without staleness: as deltas of random sign add up, or as measured where that is more."""
        return max(self.per_token * math.sqrt(self.length), self.per_trajectory)


def mismatch_checks(view: StudyView) -> list[Check]:
    """The worst run of each stratum that has a cap on trajectory ratios, where the mismatch was measured."""
    checks = []
    for key in view.keys():  # noqa: SIM118
        epsilon = _positive(dict(key[1]).get("epsilon", ""))
        if key[0] not in CAPPED or epsilon is None:
            continue
        found = [m for run in view.runs_of(key) if (m := mismatch_of(run)) is not None]
        if found:
            worst = max(found, key=lambda m: (m.in_ratios, m.floor))
            checks.append(_mismatch_check(worst, math.log1p(epsilon), view.label(key)))
    return checks


def mismatch_of(run: RunView) -> Mismatch | None:
    """None where the log holds no mismatch."""
    columns = run.curve.witnesses if run.curve is not None else {}
    names = ("mismatch_mean", "response_length", "mismatch_log_ratio", "log_ratio_abs_mean")
    if any(column not in columns for column in names):
        return None
    values = np.array([columns[column] for column in names])
    measured = values[:, np.isfinite(values).all(axis=0)]
    if not measured.size:
        return None
    per_token, length, per_trajectory, remaining = np.median(measured, axis=1).tolist()
    return Mismatch(per_token, length, per_trajectory, in_ratios=remaining > 0)


def _mismatch_check(found: Mismatch, threshold: float, label: str) -> Check:
    share = found.floor / threshold
    status: Status = "PASS"
    if found.in_ratios and share >= FLOOR_SEEN:
        status = "FAIL" if share >= FLOOR_TOO_HIGH else "WARN"
    tail = {
        "PASS": "" if found.in_ratios else "; mu is recomputed, so the ratios are free of it",
        "WARN": '; trainer.behaviour_logprobs = "learner" takes it out of the ratios',
        "FAIL": ': the cap acts on numerical noise; set trainer.behaviour_logprobs = "learner"',
    }[status]
    return Check(
        status,
        "mismatch",
        f"{label}: with the same weights, engine and learner differ by {significant(found.per_token)} nats a token "
        f"(measured), {significant(found.floor)} over a response of {count(found.length)} tokens: {percent(share)} of "
        f"log(1 + epsilon) = {significant(threshold)}{tail}.",
        "measured",
    )


def _positive(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < math.inf else None


def _law_checks(view: StudyView) -> list[Check]:
    checks: list[Check] = []
    for stratum in view.fit.strata:
        label = view.label(stratum_key(stratum.estimator, stratum.strata))
        own = [_events_check(stratum, label), _boundary_check(stratum, label)]
        checks += _uncovered(own, stratum.findings)
    return checks


def _events_check(stratum: StratumFit, label: str) -> Check:
    known = "B is known" if stratum.identifiable.B else "B is not identified"
    status: Status = "PASS" if stratum.events >= FEW_EVENTS and stratum.identifiable.B else "WARN"
    seen = f"longest observed L {significant(stratum.longest_cumulative_lr)} {LR_UPDATES}"
    return Check(
        status,
        "events",
        f"{label}: {plural(stratum.events, 'death')} in {plural(stratum.runs, 'run')}, {known}; {seen}.",
    )


def _boundary_check(stratum: StratumFit, label: str) -> Check:
    if stratum.boundary is None:
        return Check("FAIL", "boundary", f"{label}: no stability boundary could be fitted.")
    chosen = stratum.boundary.chosen
    weight = stratum.boundary.models[chosen].weight
    decided = weight >= DECIDED
    tail = "." if decided else ": the form is not decided, so advice averages the three."
    return Check(
        "PASS" if decided else "WARN",
        "boundary",
        f"{label}: boundary '{chosen}' has {percent(weight)} of the posterior weight{tail}",
    )


STATUS_OF_CODE: dict[str, Status] = {
    **dict.fromkeys(("boundary_decided",), "PASS"),
    **dict.fromkeys(
        (
            "staleness_does_not_matter",
            "prior_width_sensitivity",
            "degraded_sensitivity",
            "schedule_converted",
            "floor_assumed",
            "ceiling_deaths",
            "excluded_runs",
            "untested_survivors",
            "alpha_not_one",
            "checked_runs",
            "progress_follows_clock",
            "progress_not_compared",
        ),
        "NOTE",
    ),
    **dict.fromkeys(
        ("no_runs", "no_events", "no_survivors", "too_few_events", "one_setting", "runs_shorter_than_budget"),
        "FAIL",
    ),
}
"""A finding of a code that is not listed is a warning."""
COVERED_BY: dict[str, set[str]] = {
    "extrapolation": {"extrapolates"},
    "degraded": {"degraded_sensitivity"},
    "boundary": {"boundary_decided", "boundary_undecided", "staleness_does_not_matter", "no_events"},
    "events": {"few_events", "too_few_events", "no_events"},
}
"""Own checks that are left out where a finding says the same in more detail."""


def finding_checks(view: StudyView) -> list[Check]:
    """Findings of the study, the recommendation and the fit; each sentence once."""
    advice = view.recommendation.findings if view.recommendation else []
    labelled: list[tuple[Finding, str]] = []
    for stratum in view.fit.strata:
        label = view.label(stratum_key(stratum.estimator, stratum.strata)) if len(view.fit.strata) > 1 else ""
        labelled += [(f, label) for f in stratum.findings]
    labelled += [(f, "") for f in (*view.findings, *advice)]  # a recommendation repeats those of its fit
    unique: dict[tuple[str, str], Check] = {}
    for finding, label in labelled:
        unique.setdefault((finding.code, finding.sentence), _finding_check(finding, label))
    return list(unique.values())


def _finding_check(finding: Finding, label: str) -> Check:
    status = STATUS_OF_CODE.get(finding.code, "WARN")
    return Check(status, name(finding.code), f"{label}: {finding.sentence}" if label else finding.sentence)
