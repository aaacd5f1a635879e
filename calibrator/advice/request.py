"""What is asked of the advice, and how a schedule's interval relates to the S_eff of the laws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from calibrator.advice.cost import CostModel
from calibrator.advice.horizon import updates_within
from calibrator.advice.types import Objective, Rule, Suggested
from calibrator.laws.types import Finding
from trainer.names import ScheduleName


class ObservedGain(BaseModel):
    """How far one stable run of the sweep had come at one point of its curve."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cumulative_lr: float
    """L in LR x updates."""
    gain: float
    """Reward at L less the run's own baseline, on the task's scale."""


class AdviceRequest(BaseModel):
    """Intended run and what is known about its cost. T, S and the warm-up in updates."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    horizon: Annotated[int, Field(ge=1)]
    """T: updates of the intended run. With `hours` it only holds until an interval is chosen."""
    hours: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Hours of the intended run; T then follows at each interval from its seconds per update, and needs `cost`."""
    horizon_asked: str | None = None
    """The horizon as it was given, where that was not in updates."""
    price_per_hour: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    risk: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    """Accepted P(prone) for `stable` and `conservative`, P(collapse by T) for `budget-limited`."""
    rule: Rule = "stable"
    objective: Objective = "time"
    """Most progress on the L clock per second (`time`) or per update (`progress`)."""
    sync_intervals: Annotated[tuple[int, ...], Field(min_length=1)]
    """Swept S_eff; under the lockstep schedule of the sweep S_eff = S."""
    realised: dict[int, int] = {}
    """S of runs that somebody else made, by the S_eff that they realised: they are recommended as they were run, with
    the largest lag S_eff - 1. Empty: S follows from `schedule`."""
    max_lag: Annotated[int, Field(ge=0)] | None = None
    """Largest lag in updates that the intended run may have; None: no bound of its own."""
    group_size: int | None = None
    """G of the sweep, which the recommendation keeps."""
    epsilon: float | None = None
    """Ratio threshold of the sweep, which the recommendation keeps."""
    warmup: Annotated[int, Field(ge=0)] = 0
    schedule: ScheduleName = "lockstep"
    """Schedule of the intended run."""
    queued_cycles: Annotated[int, Field(ge=0)] = 1
    """Cycles that wait between engine and learner; `overlap` only."""
    cost: CostModel | None
    """None where no seconds were ever measured: pairs are then compared by progress per update."""
    gains: tuple[ObservedGain, ...] = ()
    """Measured progress of stable runs, from which the floor follows; without any, no floor is known."""
    suggested: Suggested | None = None
    """Other G and epsilon, from `calibrator.advice.suggest`; carried through unchanged."""
    measured: tuple[Finding, ...] = ()
    """What else the runs show (progress on the clock L, how the horizon was converted); carried through unchanged."""

    def updates_at(self, sync_interval: int) -> int:
        """T at this interval; 0 when the hours do not suffice for an update."""
        if self.hours is None or self.cost is None:
            return self.horizon
        return updates_within(self.hours, self.cost.seconds_per_update(sync_interval))


def max_lag(sync_interval: int, schedule: ScheduleName, queued_cycles: int = 1) -> int:
    """Largest lag in updates: S - 1 in lockstep, (1 + queued cycles) S - 1 under overlap. [derived]"""
    cycles = 1 if schedule == "lockstep" else 1 + queued_cycles
    return cycles * sync_interval - 1


def interval_within(effective_interval: int, schedule: ScheduleName, queued_cycles: int = 1) -> int:
    """Largest S whose mean lag is at most that of lockstep at S = S_eff; 0 when even S = 1 exceeds it. [derived]

    Lags are 0 .. S - 1 in lockstep and q S .. (q + 1) S - 1 under overlap with q cycles queued: means (S - 1) / 2 and
    ((2 q + 1) S - 1) / 2. Equal largest lags are not enough: on the embedded default overlap, which never sees fresh
    rollouts, then collapsed at rates at which lockstep was stable (docs/schedules.md).
    """
    return effective_interval // (1 if schedule == "lockstep" else 1 + 2 * queued_cycles)


def interval_in(schedule: str, effective_interval: int, queued_cycles: int = 1) -> int:
    """Smallest S of `schedule` with at least the mean lag of lockstep at S_eff: the row of a frontier to look at."""
    return -(-effective_interval // (1 if schedule == "lockstep" else 1 + 2 * queued_cycles))


def effective_interval_of(sync_interval: int, lag_bound: int) -> int:
    """The S of lockstep that has the same mean lag as cycles of S with the largest lag `lag_bound`: its S_eff."""
    return 2 * lag_bound - sync_interval + 2


def effective_under(sync_interval: int, schedule: ScheduleName, swept: Sequence[int]) -> int:
    """S_eff by which a frontier over the `swept` S_eff rates S under `schedule`; else that with the same mean lag.

    A row stands for the largest swept S_eff that S stays within, so that what is said of its S is what the row says.
    """
    same = [interval for interval in swept if interval_within(interval, schedule) == sync_interval]
    return max(same, default=effective_interval_of(sync_interval, max_lag(sync_interval, schedule)))
