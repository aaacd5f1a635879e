"""What is decided about one run."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict

Interval = tuple[float, float]


class Verdict(StrEnum):
    """The seven verdicts; see docs/verdicts.md for what each does in the fit."""

    STABLE = "stable"
    COLLAPSED = "collapsed"
    DIVERGED = "diverged"
    DEGRADED = "degraded"
    UNTRAINED = "untrained"
    INCONCLUSIVE = "inconclusive"
    INTERRUPTED = "interrupted"

    @property
    def is_event(self) -> bool:
        """Whether the run died: its onset enters the laws as an interval-censored event."""
        return self in (Verdict.COLLAPSED, Verdict.DIVERGED)

    @property
    def is_survivor(self) -> bool:
        """Whether the run enters the laws as right-censored at its own last cumulative learning rate."""
        return self in (Verdict.STABLE, Verdict.INTERRUPTED)


class Evidence(BaseModel):
    """One observation that a verdict rests on, or an early warning that is reported beside it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    code: str
    """Stable identifier, for example `reward_fell` or `non_finite`."""
    sentence: str
    update: float | None = None
    """Where on the axis of updates, if anywhere."""


class RunVerdict(BaseModel):
    """Content of `verdict.json`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int = 1
    verdict: Verdict
    onset_updates: Interval | None = None
    """(last good, first bad] policy version; events only."""
    cumulative_lr_at_onset: Interval | None = None
    """L at both ends of `onset_updates`, in LR x updates; null when the log holds no learning rate."""
    updates: int
    """Updates that the run made."""
    cumulative_lr_total: float | None = None
    """L after the last update."""
    evidence: list[Evidence] = []
    warnings: list[str] = []
