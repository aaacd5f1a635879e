"""A confirmation on request: seeds at the recommended numbers, and at a rate that is unsafe on purpose.

Stages of the study like any other: planned once in the journal, carried on after an interruption, never run twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from calibrator.advice.types import Recommendation
from calibrator.laws.observations import is_event, is_used
from calibrator.study.results import CHECK_STAGE, CHECKED_RUNS, TrialResult
from calibrator.sweep.design import ProposedRun
from calibrator.sweep.rounds import Sweep


def check_stage(advice: Recommendation, learning_rate: float) -> str:
    """Name of the stage that checks a recommendation at one rate."""
    return f"{_checks_of(advice)}{learning_rate!r}"


def checks(advice: Recommendation, result: TrialResult) -> bool:
    """Whether the trial was made to check this recommendation: its prediction must not rest on it."""
    return result.stage.startswith(_checks_of(advice))


def in_fit(advice: Recommendation | None, results: Sequence[TrialResult]) -> list[TrialResult]:
    """The trials that the fit behind `advice` may rest on: not those that were made to check it afterwards.

    A recommendation that was asked for after its check rests on them, and says so.
    """
    if advice is None or any(finding.code == CHECKED_RUNS for finding in advice.findings):
        return list(results)
    return [result for result in results if not checks(advice, result)]


def run_check(sweep: Sweep, advice: Recommendation, learning_rate: float, seeds: int) -> list[TrialResult]:
    """Make `seeds` runs of T updates at this rate, or what is missing of them; returns all that were ever made.

    What `max_updates` of the sweep does not afford is left out, and the sweep says so in `budget_bound`.
    """
    name = check_stage(advice, learning_rate)
    planned = sweep.journal.plan(name) or []
    first = next_seed(sweep)
    more = [
        ProposedRun(
            estimator=advice.estimator,
            sync_interval=advice.sync_interval,
            learning_rate=learning_rate,
            seed=first + number,
            updates=advice.horizon,
            reason=f"checks the recommended eta = {advice.learning_rate:g}",
        )
        for number in range(seeds - len(planned))
    ]
    if more:
        sweep.journal.record_plan(name, [*planned, *more])
    what = "recommended" if learning_rate == advice.learning_rate else "unsafe"
    return sweep.stage(name, list, title=f"{what} eta = {learning_rate:g}", most=seeds, evaluate=True)


def next_seed(sweep: Sweep) -> int:
    """A seed that no run of the study has, made or planned."""
    plans = (sweep.journal.plan(name) or [] for name in sweep.journal.stages())
    made = (result.config.seed for result in sweep.results)
    return 1 + max([*made, *(run.seed for plan in plans for run in plan)], default=-1)


def outcomes(done: Iterable[TrialResult]) -> list[tuple[int, str, bool | None]]:
    """Number, verdict, and whether the run collapsed; None where its verdict leaves that open."""
    runs = [(result.number, result.run()) for result in done]
    return [(number, run.verdict.value, is_event(run) if is_used(run) else None) for number, run in runs]


def _checks_of(advice: Recommendation) -> str:
    return f"{CHECK_STAGE}-S{advice.sync_interval}-eta{advice.learning_rate!r}-T{advice.horizon}-at-"
