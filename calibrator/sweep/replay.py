"""Would ending finished runs early have changed a verdict? Their curves, cut at successive points and judged anew.

Two rules end a run of the sweep. `certain`: the online rule, which stops a trial once its collapse is beyond doubt.
`settled`: the length that the design gives a run, an L at which a prone run has very likely collapsed; here from all
runs of the study, in hindsight. Units: updates, and LR x updates for cumulative rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from calibrator.runlogs.curve import Curve, Series
from calibrator.sweep.design import DesignSpace, settled_length
from calibrator.verdicts.judge import judge, judge_so_far
from calibrator.verdicts.settings import JudgeSettings
from calibrator.verdicts.types import Verdict
from calibrator.wording import plural

StopRule = Literal["certain", "settled"]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Stop(_Record):
    """Where a rule would have ended a run, and what its verdict would have been."""

    rule: StopRule
    updates: int
    verdict: Verdict


class Replay(_Record):
    """One finished curve, judged anew as a whole and cut."""

    run: str
    trial: int
    estimator: str
    sync_interval: int
    learning_rate: float
    planned: int
    """Updates that the run was given."""
    updates: int
    """Updates that it made."""
    verdict: Verdict
    """Of the whole curve, judged anew."""
    stop: Stop | None
    """The earlier of the two ends; null when neither rule would have ended the run before its own end."""

    @property
    def ended_early(self) -> bool:
        """Whether the run was ended before its planned length."""
        return self.updates < self.planned

    @property
    def unknown(self) -> bool:
        """Whether it was ended where the rule ends it: what it would have done afterwards nobody knows."""
        return self.stop is None and self.ended_early

    @property
    def changed(self) -> bool:
        """Whether the end would have changed the verdict. Only `stable` and `interrupted` count as the same."""
        return self.stop is not None and not _same(self.stop.verdict, self.verdict)

    @property
    def saved(self) -> int:
        """Updates of the curve that the end would have saved."""
        return 0 if self.stop is None else self.updates - self.stop.updates


class ReplayResult(_Record):
    """Answer of `calibrate replay`."""

    schema_version: int = 1
    runs: list[Replay]
    stopping_cumulative_lr: dict[str, float | None]
    """By estimator: L at which the runs of the study say that prone runs have collapsed; null when they cannot."""


def replayed_stop(
    curve: Curve, settings: JudgeSettings, *, learning_rate: float, space: DesignSpace, target: float | None
) -> Stop | None:
    """The first end of a curve by either rule, or None when both leave it alone.

    Args:
        curve: the whole run.
        settings: of the run, as the trial is judged with.
        learning_rate: eta after warm-up.
        space: lengths that the design may choose from.
        target: L at which a survivor is settled; None when the study does not know it.
    """
    S = settings.sync_interval
    length = curve.updates
    if target is not None:
        length = min(length, settled_length(space, S, learning_rate, target=target))
    for updates in cut_points(curve, S):
        if updates >= length:
            break
        verdict = judge_so_far(curve_until(curve, updates), settings)
        if verdict is not None:
            return Stop(rule="certain", updates=updates, verdict=verdict.verdict)
    if length == curve.updates:
        return None
    planned = settings.model_copy(update={"horizon": length, "ended": "finished"})
    return Stop(rule="settled", updates=length, verdict=judge(curve_until(curve, length), planned).verdict)


def cut_points(curve: Curve, sync_interval: int) -> list[int]:
    """Updates after which a trial asks whether its verdict is certain: its probes, else its synchronizations."""
    if curve.probes is None or not curve.probes.seen.size:
        return list(range(sync_interval, curve.updates + 1, sync_interval))
    return sorted({int(seen) for seen in curve.probes.seen if seen > 0})


def curve_until(curve: Curve, updates: int) -> Curve:
    """The curve as it was known when `updates` updates were made."""
    probes = _until(curve.probes, updates) if curve.probes is not None else None
    fatal = curve.non_finite_update
    lags = curve.witnesses.get("lag_max", np.empty(0))[:updates]
    known = lags[np.isfinite(lags)]
    return replace(
        curve,
        updates=min(updates, curve.updates),
        learning_rate=curve.learning_rate[:updates],
        rewards=_until(curve.rewards, updates),
        probes=probes if probes is not None and probes.seen.size else None,
        others=tuple(_until(series, updates) for series in curve.others),
        witnesses={name: column[:updates] for name, column in curve.witnesses.items()},
        non_finite_update=fatal if fatal is not None and fatal < updates else None,
        max_lag=int(known.max()) if known.size else curve.max_lag,
    )


def summary_sentences(result: ReplayResult) -> list[str]:
    """The answer in words."""
    telling = [run for run in result.runs if not run.unknown]
    return [_about_telling(telling), *_about_unknown([run for run in result.runs if run.unknown])]


def _about_telling(telling: Sequence[Replay]) -> str:
    if not telling:
        return (
            "No run went on beyond an early end, so nothing tells whether one would have changed a verdict."
        )
    made, saved = sum(run.updates for run in telling), sum(run.saved for run in telling)
    changed = [run.run for run in telling if run.changed]
    verdicts = f"{len(changed)} verdict{'s' if len(changed) > 1 else ''}: {', '.join(changed)}"
    return (
        f"Of the {plural(len(telling), 'run')} that went on to their planned length or beyond an early end, early "
        f"stopping would have saved {saved} of {made} updates and changed {verdicts if changed else 'no verdict'}."
    )


def _about_unknown(ended: Sequence[Replay]) -> list[str]:
    if not ended:
        return []
    spared = sum(run.planned - run.updates for run in ended)
    return [
        f"{len(ended)} run{'s were' if len(ended) > 1 else ' was'} ended early, {spared} updates before the planned "
        "length: what would have come then is unknown."
    ]


def _until(series: Series, updates: int) -> Series:
    keep = series.seen <= updates
    return Series(series.name, series.version[keep], series.value[keep], series.se[keep], series.seen[keep])


def _same(first: Verdict, second: Verdict) -> bool:
    return first is second or (first.is_survivor and second.is_survivor)
