"""Runs as arrays: which enter the fit, as what, and on which interval of the L clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from calibrator.laws.types import Run
from calibrator.verdicts.types import Verdict

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Group:
    """N distinct observations of one kind; `count` says how many runs share each.

    An event lies in (low, high] on the L clock. A survivor has low = its last L and high = infinity.
    """

    S: Floats
    """S_eff, in updates."""
    log_eta: Floats
    log_low: Floats
    log_high: Floats
    count: Floats

    @cached_property
    def intervals(self) -> tuple[Floats, NDArray[np.intp]]:
        """The distinct S_eff, and for each observation which of them it has: a boundary is needed once for each."""
        distinct, which = np.unique(self.S, return_inverse=True)
        return distinct, which


@dataclass(frozen=True)
class Observations:
    events: Group
    survivors: Group


def is_used(run: Run) -> bool:
    """Whether the run enters the fit: it trained at a positive rate and its verdict says something."""
    known = run.verdict.is_event or run.verdict.is_survivor or run.verdict is Verdict.DEGRADED
    return known and run.learning_rate > 0


def is_event(run: Run, *, degraded_dies: bool = False) -> bool:
    """Whether the run enters as an event; a degraded run is a survivor unless `degraded_dies`."""
    return run.verdict.is_event or (degraded_dies and run.verdict is Verdict.DEGRADED)


def onset_interval(run: Run) -> tuple[float, float]:
    """(low, high] of L at onset, in LR x updates.

    Without a cumulative rate at onset it is eta times the onset in updates; without any onset, the whole
    run. A point (a diverged run) is widened to the update that ends there, since F is continuous and a
    point has no probability.
    """
    low, high = run.cumulative_lr_onset_low, run.cumulative_lr_onset_high
    if low is None:
        low = run.learning_rate * (run.onset_low or 0.0)
    if high is None:
        high = run.cumulative_lr if run.onset_high is None else run.learning_rate * run.onset_high
    if high <= low:
        low = high - run.learning_rate
    return max(low, 0.0), max(high, run.learning_rate if low <= 0 else high)


def observe(runs: Sequence[Run], *, degraded_dies: bool = False) -> Observations:
    """Arrays of the used runs, equal rows merged; the order of `runs` does not matter."""
    events = [_event_row(run) for run in runs if is_used(run) and is_event(run, degraded_dies=degraded_dies)]
    survivors = [
        (run.effective_interval, run.learning_rate, run.cumulative_lr, np.inf)
        for run in runs
        if is_used(run) and not is_event(run, degraded_dies=degraded_dies)
    ]
    return Observations(events=_group(events), survivors=_group(survivors))


def untimed(observations: Observations, without: NDArray[np.bool_]) -> Observations:
    """The same events, but those in the mask `without` only say that they died, not when: (0, infinity]."""
    events = observations.events
    low = np.where(without, -np.inf, events.log_low)
    high = np.where(without, np.inf, events.log_high)
    return replace(observations, events=replace(events, log_low=low, log_high=high))


def thinned(observations: Observations, most: int) -> Observations:
    """About `most` rows, evenly spaced in the sorted rows, that stand for all."""
    rows = observations.events.S.size + observations.survivors.S.size
    stride = -(-rows // most)
    return Observations(_every(observations.events, stride), _every(observations.survivors, stride))


def _every(group: Group, stride: int) -> Group:
    part = slice(stride // 2 if group.S.size > stride // 2 else 0, None, stride)
    share = group.count.sum() / max(group.count[part].sum(), 1.0)
    return Group(
        group.S[part],
        group.log_eta[part],
        group.log_low[part],
        group.log_high[part],
        share * group.count[part],
    )


def _event_row(run: Run) -> tuple[float, float, float, float]:
    low, high = onset_interval(run)
    return run.effective_interval, run.learning_rate, low, high


def _group(rows: Sequence[tuple[float, float, float, float]]) -> Group:
    table = np.array(rows, dtype=np.float64).reshape(-1, 4)
    distinct, count = np.unique(table, axis=0, return_counts=True)
    with np.errstate(divide="ignore"):  # log 0 = -inf is the right place for L = 0: F(0) = 0
        S, log_eta, log_low, log_high = distinct[:, 0], *np.log(distinct[:, 1:].T)
    return Group(S, log_eta, log_low, log_high, count.astype(np.float64))
