"""Health checks on what the trials recorded beside their rewards: lags, discarded groups, noise floor, warm-up."""

from __future__ import annotations

import numpy as np

from reports.cards.blocks import Check
from reports.curves import warmup_end
from reports.numbers import listing, percent, plural, rate, significant
from reports.view import RunView, StudyView

FLOOR_SHARE = 0.1
"""Share of the log-ratio that staleness makes from which the floor at lag 0 is more than a trifle."""
DISCARDED_SHARE = 0.01
"""Share of finished groups thrown away from which the data may be biased against slow prompts."""
MOST_NAMED = 4
"""Places that one sentence lists."""


def recorded_checks(view: StudyView) -> list[Check]:
    """Checks that need what trials recorded; of imported logs only those whose fields are there."""
    return [*_lag_checks(view), *_floor_checks(view), *_discarded_checks(view), *_warmup_checks(view)]


def _lag_checks(view: StudyView) -> list[Check]:
    told = [(run, run.recorded.summary) for run in view.runs if run.recorded and run.recorded.summary]
    if not told:
        return []
    beyond = [run for run, summary in told if summary.lag_reached > summary.lag_bound]
    if beyond:
        said = f"The lag went beyond its bound in {plural(len(beyond), 'run')}: {_trials(beyond)}."
        return [Check("FAIL", "lag", said, "measured")]
    bounds = [summary.lag_bound for _, summary in told if summary.lag_bound > 0]
    short = [run for run, summary in told if 0 < summary.lag_reached + 1 <= summary.lag_bound]
    most = max(summary.lag_reached for _, summary in told)
    if not bounds:
        return [Check("PASS", "lag", "All runs are synchronous: the lag is 0 throughout.", "measured")]
    said = f"The realised lag stays within its bound in all {plural(len(told), 'run')}"
    said += f"; the largest is {plural(most, 'update')}."
    if short:
        said += f" The bound never acted in {plural(len(short), 'run')} ({_trials(short)})"
        said += ": they were less stale than it allows."
    return [Check("PASS", "lag", said, "measured")]


def _floor_checks(view: StudyView) -> list[Check]:
    """The log-ratio at lag 0, where nothing is stale, against the one at the largest lags."""
    floors = [x for run in view.runs if (x := _log_ratio(run, stale=False)) is not None]
    if not floors:
        return []
    floor = float(np.median(floors))
    stale = [x for run in view.runs if (x := _log_ratio(run, stale=True)) is not None]
    said = f"Noise floor: without any lag a trajectory's log-ratio is {significant(floor)} nats"
    said += f" (median of {plural(len(floors), 'run')})"
    if not stale:
        return [
            Check(
                "NOTE",
                "noise_floor",
                f"{said}; no run is stale, so there is nothing to compare it with.",
                "measured",
            )
        ]
    share = floor / float(np.median(stale))
    said += f", {percent(share)} of the {significant(float(np.median(stale)))} that the largest lags make."
    if share >= FLOOR_SHARE:
        said += ' Ratios are partly numerical noise: set trainer.behaviour_logprobs = "learner".'
    return [Check("PASS" if share < FLOOR_SHARE else "WARN", "noise_floor", said, "measured")]


def _log_ratio(run: RunView, *, stale: bool) -> float | None:
    """Median of |log r| over the updates at lag 0, or over those at the run's largest lag above 0."""
    columns = run.curve.witnesses if run.curve is not None else {}
    if "lag_max" not in columns or "log_ratio_abs_mean" not in columns:
        return None
    lag, ratio = columns["lag_max"], columns["log_ratio_abs_mean"]
    known = np.isfinite(lag) & np.isfinite(ratio)
    most = lag[known].max(initial=0.0)
    if stale and most == 0:
        return None
    chosen = ratio[known & (lag == (most if stale else 0))]
    return float(np.median(chosen)) if chosen.size else None


def _discarded_checks(view: StudyView) -> list[Check]:
    told = [run.recorded.summary for run in view.runs if run.recorded and run.recorded.summary]
    if not told:
        return []
    thrown = [summary for summary in told if summary.discarded_groups]
    total = sum(summary.discarded_groups for summary in thrown)
    if not total:
        return [Check("PASS", "discarded", "No finished group was thrown away.", "measured")]
    used = sum(run.run.updates * (_prompts(run) or 0) for run in view.runs)
    known = [s for s in thrown if s.discarded_pass_rate is not None]
    said = f"{plural(total, 'finished group')} in {plural(len(thrown), 'run')} were never used: the runs ended early"
    if known:
        rates = np.average(
            [s.discarded_pass_rate or 0.0 for s in known], weights=[s.discarded_groups for s in known]
        )
        said += f"; {percent(float(rates))} of their completions had full marks"
    much = used > 0 and total > DISCARDED_SHARE * used
    tail = f", {percent(total / used)} of all." if used else "."
    return [Check("WARN" if much else "PASS", "discarded", said + tail, "measured")]


def _prompts(run: RunView) -> int | None:
    text = run.run.strata.get("P", "")
    return int(text) if text.isdecimal() else None


def _warmup_checks(view: StudyView) -> list[Check]:
    """Deaths while the rate still rose tell of another rate than the run's; runs that ended there of none."""
    ends = [(run, warmup_end(run.curve)) for run in view.runs if run.curve is not None]
    if not any(end for _, end in ends):
        return []
    died = [run for run, end in ends if (onset := run.verdict.onset_updates) and onset[1] <= end]
    cut = [run for run, end in ends if run not in died and end and run.run.updates <= end + 1]
    longest = max(end for _, end in ends)
    if not died and not cut:
        said = f"No run died or ended while its rate still rose (warm-up of {plural(longest, 'update')})."
        return [Check("PASS", "warmup", said, "measured")]
    parts = [
        f"{plural(len(runs), 'run')} {what} ({_trials(runs)})"
        for runs, what in ((died, "died"), (cut, "ended"))
        if runs
    ]
    said = f"{listing(parts)} while the rate still rose: at a lower rate than the one under which they stand."
    return [Check("WARN", "warmup", said, "derived")]


def untested_checks(view: StudyView) -> list[Check]:
    """Swept intervals of the decisive estimator at which only one side of the boundary was seen."""
    key = view.recommended_key() or next(iter(view.keys()), None)
    if key is None:
        return []
    runs = [
        row for row in view.runs_of(key) if row.verdict.verdict.is_event or row.verdict.verdict.is_survivor
    ]
    alive, dead = (_rates_by_interval(runs, events=events) for events in (False, True))
    open_above = [f"S = {S} (stable up to {rate(max(rates))})" for S, rates in alive.items() if S not in dead]
    open_below = [f"S = {S} (dead from {rate(min(rates))})" for S, rates in dead.items() if S not in alive]
    label = view.label(key)
    if not runs:
        return []
    if not open_above and not open_below:
        said = f"{label}: both sides of the boundary were seen at every swept S."
        return [Check("PASS", "untested", said, "measured")]
    checks = []
    if open_above:
        said = f"{label}: no run died at {_some(open_above)}: the boundary there is inferred from other intervals."
        checks.append(Check("WARN", "untested", said, "measured"))
    if open_below:
        said = f"{label}: no run survived at {_some(open_below)}: what is safe there is inferred from other intervals."
        checks.append(Check("WARN", "untested", said, "measured"))
    return checks


def _rates_by_interval(runs: list[RunView], *, events: bool) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for row in sorted(runs, key=lambda each: each.run.sync_interval):
        if row.verdict.verdict.is_event is events and row.run.learning_rate > 0:
            found.setdefault(row.run.sync_interval, []).append(row.run.learning_rate)
    return found


def _some(places: list[str]) -> str:
    more = len(places) - MOST_NAMED
    return listing([*places[:MOST_NAMED], *([f"{more} more"] if more > 0 else [])])


def _trials(runs: list[RunView]) -> str:
    word = "trial" if len(runs) == 1 else "trials"
    return f"{word} {_some([str(run.trial) for run in runs])}"
