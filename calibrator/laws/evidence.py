"""What the runs of one stratum are, before any fit, and the run that would tell more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import betaincinv

from calibrator.laws.observations import is_event, is_used, onset_interval
from calibrator.laws.posterior import rounded
from calibrator.laws.types import LEVEL, Estimate, Run, SeenPair
from calibrator.verdicts.types import Verdict

MIN_EVENTS = 3
"""Fewer events give no boundary and no budget: both spreads would be the prior's, not the runs'."""
FEW_EVENTS = 6
"""Fewer events than this are worth a warning beside the numbers."""
DECIDED = 0.9
"""Posterior weight from which one boundary is said to be preferred."""
SHORTEST = 50
"""Updates below which no verdict on a run can be expected."""
LONGER = 4
"""Factor of length, or of rate, by which a next run goes beyond what was tried."""


@dataclass(frozen=True)
class Evidence:
    """The runs of one stratum by their part in the fit; `survivors` includes `degraded`."""

    events: tuple[Run, ...]
    survivors: tuple[Run, ...]
    degraded: tuple[Run, ...]
    excluded: tuple[Run, ...]

    @property
    def used(self) -> tuple[Run, ...]:
        return self.events + self.survivors

    @property
    def rates(self) -> set[float]:
        """Distinct learning rates."""
        return {run.learning_rate for run in self.used}

    @property
    def intervals(self) -> set[int]:
        """Distinct S_eff, in updates."""
        return {run.effective_interval for run in self.used}

    @property
    def longest(self) -> float:
        """Longest observed L, in LR x updates; of a run that collapsed up to its onset: afterwards it shows nothing."""
        watched = [run.cumulative_lr for run in self.survivors] + [
            onset_interval(run)[1] for run in self.events
        ]
        return max(watched, default=0.0)


def evidence(runs: Sequence[Run]) -> Evidence:
    """Sort the runs of one stratum by their part in the fit."""
    used = [run for run in runs if is_used(run)]
    return Evidence(
        events=tuple(run for run in used if is_event(run)),
        survivors=tuple(run for run in used if not is_event(run)),
        degraded=tuple(run for run in used if run.verdict is Verdict.DEGRADED),
        excluded=tuple(run for run in runs if not is_used(run)),
    )


def realised_intervals(runs: Sequence[Run]) -> dict[int, int]:
    """For each S, ascending, the largest S_eff that runs with it realised."""
    realised: dict[int, int] = {}
    for run in sorted(runs, key=lambda run: run.sync_interval):
        realised[run.sync_interval] = max(realised.get(run.sync_interval, 1), run.effective_interval)
    return realised


def seen_pairs(seen: Evidence) -> list[SeenPair]:
    """Each tested (S, eta), most exposed first, with the chance of a collapse by the L up to which it was seen."""
    pairs: dict[tuple[int, float], list[Run]] = {}
    for run in sorted(seen.used, key=exposure, reverse=True):
        pairs.setdefault((run.sync_interval, run.learning_rate), []).append(run)
    return [_pair(runs) for runs in pairs.values()]


def _pair(runs: Sequence[Run]) -> SeenPair:
    """All runs were watched up to the shortest survivor's L; one that collapsed later had not done so by then."""
    survived = [run.cumulative_lr for run in runs if not is_event(run)]
    seen = min(survived) if survived else max(onset_interval(run)[1] for run in runs)
    collapsed = sum(is_event(run) and onset_interval(run)[0] < seen for run in runs)
    return SeenPair(
        sync_interval=runs[0].sync_interval,
        learning_rate=runs[0].learning_rate,
        runs=len(runs),
        collapsed=collapsed,
        cumulative_lr=seen,
        collapse_probability=share(collapsed, len(runs)),
    )


def share(count: int, of: int) -> Estimate:
    """A binomial share with its exact 90 % interval (Clopper and Pearson); one-sided where all or none count."""
    tail = (1 - LEVEL) / (1 if count in (0, of) else 2)
    low = 0.0 if count == 0 else float(betaincinv(count, of - count + 1, tail))
    high = 1.0 if count == of else float(betaincinv(count + 1, of - count, 1 - tail))
    return Estimate(estimate=rounded(count / of), low=rounded(low), high=rounded(high))


def exposure(run: Run) -> tuple[float, float]:
    """Order of runs by S_eff eta, then by L: the first to collapse if anything does."""
    return run.effective_interval * run.learning_rate, run.cumulative_lr


def next_run(S: int, eta: float, L: float) -> str:
    """Sentence that names a run by S, eta and the updates that reach L, two synchronizations or SHORTEST at least."""
    updates = max(round_up(L / eta), 2 * S, SHORTEST)
    return f"Next run: S = {S}, eta = {eta:.3g}, {updates} updates (L = {updates * eta:.3g})."


def extension(run: Run, L: float) -> str:
    """Sentence that names an existing run and the length that reaches L."""
    more = max(L - run.cumulative_lr, 0.0) / run.learning_rate
    return (
        f"Next: extend {run.run} (S = {run.sync_interval}, eta = {run.learning_rate:.3g}) from {run.updates} "
        f"to {round_up(run.updates + more)} updates (L = {L:.3g})."
    )


def round_up(updates: float) -> int:
    """The next whole number of updates, to two significant digits."""
    if updates <= 1:
        return 1
    unit = 10.0 ** max(math.floor(math.log10(updates)) - 1, 0)
    return int(math.ceil(round(updates / unit, 9)) * unit)
