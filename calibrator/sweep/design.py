"""Which runs to make next. Pure functions of counted quantities: same runs in, same proposals out.

Units: eta in LR, S and lengths in updates, L in LR x updates. The sweep runs in lockstep, so S_eff = S. A
run is worth what it is expected to take off the posterior variance of log eta_risk (the largest rate that
the rule `stable` would allow), for each update that it is expected to cost. The expectation reweights the
draws at hand by each possible outcome instead of refitting. [derived]
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from calibrator.advice.rules import CREDIBLE, log_eta_at_risk
from calibrator.laws.fit import design_posterior
from calibrator.laws.observations import is_event, is_used
from calibrator.laws.posterior import Floats, Posterior, collapse_probability
from calibrator.laws.types import Run
from calibrator.verdicts import settings as rule
from calibrator.verdicts.types import Verdict
from trainer.config import cumulative_learning_rate

GRID_RATIO = math.sqrt(2.0)
"""Ratio between neighbouring candidate rates."""
WIDEN = 4.0
"""Factor beyond the tested rates when all runs survive or all die."""
FIRST_HIGH, FIRST_LOW, SPREAD = 0.8, 0.6, 0.2
"""Centre of the rates of the first round at the smallest and at the largest interval, and half the distance
between an interval's outermost rates; all as shares of the log range."""
FIRST_LENGTH = 0.25
"""Share of the longest run that a run of the first round may take: while B is unknown, long runs are mostly wasted."""
CYCLES = 3
"""Fewest sync cycles of a run: staleness feeds back only from the second on, and a verdict needs one more."""
MAX_DRAWS = 1000
"""Draws that the expectations use, taken at even strides."""
MAX_BRANCHES = 16
"""Combinations of outcomes of already picked runs that are kept apart."""


@dataclass(frozen=True)
class ProposedRun:
    """A run to make; `reason` is for people."""

    estimator: str
    sync_interval: int
    learning_rate: float
    seed: int
    updates: int
    """Length; what a survivor would do beyond it could not change the answer, see `stopping_cumulative_lr`."""
    reason: str
    stopping_cumulative_lr: float | None = None
    """L at which a survivor speaks for itself, since a prone run has very likely collapsed by then. `updates` reaches
    it and lets a late fall show, unless the longest run is shorter. None: the run has a length of its own."""


@dataclass(frozen=True)
class DesignSpace:
    """What a stratum of the sweep may choose from."""

    estimator: str
    sync_intervals: tuple[int, ...]
    learning_rates: tuple[float, float]
    """(low, high) of the first round; later rounds may go fourfold beyond what was tested."""
    seeds: tuple[int, ...] = (0,)
    """Seeds of the first trials; later trials count on from the largest."""
    longest: int = 400
    """Most updates of a run of the sweep."""
    warmup: int = 0
    risk: float = 0.05
    window: int = rule.PARTIAL_UPDATES
    """Updates that a run goes on after a possible onset, where one sync is not longer: by then its end can tell a
    partial fall from a dip, and the run is not wasted as inconclusive."""
    shortest: int = 64
    """Fewest updates of a run: enough for a baseline and for a drop that persists."""

    def window_at(self, sync_interval: int) -> int:
        """Updates that a run must go on after its onset so that its end shows the fall: a sync at least."""
        return max(self.window, rule.DEEP_SYNCS * sync_interval)

    def seed(self, position: int) -> int:
        """Seed of the trial at this position of the stratum; never twice the same."""
        if position < len(self.seeds):
            return self.seeds[position]
        return max(self.seeds) + 1 + position - len(self.seeds)


def first_round(space: DesignSpace, *, rates_per_interval: int = 2) -> list[ProposedRun]:
    """Coarse round: for each S rates spread evenly in log eta around a centre that falls as S grows.

    The centres move while S runs over its whole range, so that eta and S eta both vary and are not confounded: one
    rate alone or one interval alone cannot identify the boundary. They lie in the upper part of the range, where
    runs die: a death is cheap and shows B, a survivor far below the boundary is dear and shows nothing.
    """
    intervals = sorted(set(space.sync_intervals))
    space = replace(space, longest=first_length(space))
    target = target_cumulative_lr(None, [], space)
    places = np.linspace(0.0, 1.0, len(intervals)) if len(intervals) > 1 else [0.5]
    pairs = [
        (interval, rate)
        for interval, place in zip(intervals, places, strict=True)
        for rate in _staggered(space, float(place), rates_per_interval)
    ]
    return [
        _proposed(space, pair, position, target=target, reason="coarse first round")
        for position, pair in enumerate(pairs)
    ]


def first_length(space: DesignSpace) -> int:
    """Most updates of a run of the first round; the largest interval still gets its cycles and its window."""
    interval = max(space.sync_intervals)
    least = max(CYCLES * interval, space.shortest) + space.window_at(interval)
    return min(space.longest, max(math.ceil(FIRST_LENGTH * space.longest), least))


def next_round(
    runs_so_far: Sequence[Run],
    space: DesignSpace,
    *,
    round_size: int,
    seconds_per_update: Mapping[int, float] | None = None,
    posterior: Posterior | None = None,
    pairs: Sequence[tuple[int, float]] | None = None,
) -> list[ProposedRun]:
    """The `round_size` runs that are expected to narrow the advice most per update.

    `runs_so_far` are all runs of this stratum, in any order: their number gives the seeds. While only one
    kind of outcome was seen, the rates are bracketed from the bare verdicts: fourfold up while everything
    survives, fourfold down while everything dies. `seconds_per_update` of each swept S says which of them
    could be recommended (see `recommendable`); without it all count the same. `posterior` spares the fit where
    the caller has made `design_posterior` of these runs already; `pairs` are the (S, eta) to choose from once there
    is a posterior, instead of the swept intervals times a log grid.
    """
    kinds = {is_event(run) for run in runs_so_far if is_used(run)}
    posterior = (posterior or design_posterior(runs_so_far)) if len(kinds) == 2 else None
    target = target_cumulative_lr(posterior, runs_so_far, space)
    if posterior is None:
        chosen = _bracketing(runs_so_far, space, round_size)
        reason = "looks for the other outcome: all runs so far ended alike"
    else:
        weights = dict.fromkeys(space.sync_intervals, 1.0)
        if seconds_per_update is not None:
            weights = recommendable(posterior, seconds_per_update, risk=space.risk)
        among = _candidates(runs_so_far, space) if pairs is None else list(pairs)
        chosen = _most_telling(posterior, among, space, target=target, weights=weights, round_size=round_size)
        reason = "expected to narrow the largest stable rate most per update"
    start = len(runs_so_far)
    return [
        _proposed(space, pair, start + position, target=target * _patience(runs_so_far, pair), reason=reason)
        for position, pair in enumerate(chosen)
    ]


def run_length(
    eta: float,
    sync_interval: int,
    *,
    target_cumulative_lr: float,
    horizon: int,
    warmup: int,
    window: int = 0,
    shortest: int = 1,
) -> int:
    """Updates until L reaches the target: equal cumulative LR, not equal updates, makes runs comparable.

    `window` updates are added so that an onset just before the target is still noticed. Whole sync cycles, at
    least three of them and `shortest` updates, at most `horizon` updates.
    """
    late = warmup - cumulative_learning_rate(warmup, peak=1.0, warmup=warmup)
    wanted = max(target_cumulative_lr / eta + late + window, CYCLES * sync_interval, shortest)
    return min(math.ceil(wanted / sync_interval - 1e-9) * sync_interval, horizon)


def settled_length(space: DesignSpace, sync_interval: int, eta: float, *, target: float) -> int:
    """Updates of a run of this space that ends once L = `target` is reached and noticed, see `run_length`."""
    return run_length(
        eta,
        sync_interval,
        target_cumulative_lr=target,
        horizon=space.longest,
        warmup=space.warmup,
        window=space.window_at(sync_interval),
        shortest=space.shortest,
    )


def target_cumulative_lr(posterior: Posterior | None, runs: Iterable[Run], space: DesignSpace) -> float:
    """L by which a run that is prone has very likely collapsed, so that a survivor speaks for itself.

    From the posterior: the 95 % point of L at collapse, at the upper quartile of the draws. Before there is
    one: twice the latest onset; fourfold the largest L that was survived while nothing collapsed; at the start
    the longest run at the geometric middle of the rates. Assumed factors.
    """
    if posterior is not None:
        reach = posterior.log_B + posterior.sigma_B * ndtri(CREDIBLE)
        return float(np.exp(np.quantile(reach, 0.75)))
    known = list(runs)
    onsets = [run.cumulative_lr_onset_high or run.cumulative_lr for run in known if is_event(run)]
    if onsets:
        return 2.0 * max(onsets)
    middle = math.sqrt(math.prod(space.learning_rates))
    start = cumulative_learning_rate(space.longest - space.window, peak=middle, warmup=space.warmup)
    return max([start, *(WIDEN * run.cumulative_lr for run in known if is_used(run))])


def bracket(runs: Sequence[Run], sync_interval: int) -> float | None:
    """Next rate at this interval, to two digits, while all runs survived or all died; `None` without runs.

    Fourfold above the largest rate that survived (a run that did not train counts as such), else fourfold
    below the smallest that died, and between the two where there are both. An interval without runs goes by
    those of all intervals.
    """
    known = [run for run in runs if is_used(run) or run.verdict is Verdict.UNTRAINED]
    here = [run for run in known if run.sync_interval == sync_interval] or known
    alive = [run.learning_rate for run in here if not is_event(run)]
    dead = [run.learning_rate for run in here if is_event(run)]
    if alive and dead:
        return _two_digits(math.sqrt(max(alive) * min(dead)))
    if alive:
        return _two_digits(max(alive) * WIDEN)
    return _two_digits(min(dead) / WIDEN) if dead else None


def narrow_enough(
    posterior: Posterior | None, effective_intervals: Iterable[int], *, risk: float, factor: float
) -> bool:
    """Whether at each S_eff the median of eta_risk is within `factor` of its 5 % quantile, the limit.

    Pass the interval that would be recommended to stop as soon as that answer is sharp.
    """
    if posterior is None:
        return False
    return all(narrowness(posterior, interval, risk) <= factor for interval in effective_intervals)


def narrowness(posterior: Posterior, effective_interval: int, risk: float) -> float:
    """Median of eta_risk over its 5 % quantile, at least 1: what is given away for want of runs."""
    draws = log_eta_at_risk(posterior, effective_interval, risk)
    low, middle = np.quantile(draws, [1 - CREDIBLE, 0.5])
    return float(np.exp(middle - low))


def recommendable(
    posterior: Posterior, seconds_per_update: Mapping[int, float], *, risk: float, even: float = 0.5
) -> dict[int, float]:
    """Weight of each swept S: how likely it makes the most progress per second, mixed with an even share.

    S = 1 gets the even share only: it is the synchronous reference. The even share keeps the law itself in
    view.
    """
    stale = [interval for interval in seconds_per_update if interval > 1] or list(seconds_per_update)
    merit = np.array(
        [log_eta_at_risk(posterior, S, risk) - math.log(seconds_per_update[S]) for S in stale],
        dtype=np.float64,
    )
    wins = np.bincount(np.argmax(merit, axis=0), minlength=len(stale)) / merit.shape[1]
    share = dict(zip(stale, wins.tolist(), strict=True))
    return {S: even / len(seconds_per_update) + (1 - even) * share.get(S, 0.0) for S in seconds_per_update}


def _staggered(space: DesignSpace, place: float, count: int) -> list[float]:
    """`count` rates at an interval that stands at `place` among the swept ones: 0 smallest, 1 largest."""
    low, high = (math.log(rate) for rate in space.learning_rates)
    centre = FIRST_HIGH + (FIRST_LOW - FIRST_HIGH) * place
    shares = [centre] if count == 1 else np.linspace(centre - SPREAD, centre + SPREAD, count).tolist()
    return [_two_digits(math.exp(low + share * (high - low))) for share in shares]


def _proposed(
    space: DesignSpace, pair: tuple[int, float], position: int, *, target: float, reason: str
) -> ProposedRun:
    interval, rate = pair
    return ProposedRun(
        estimator=space.estimator,
        sync_interval=interval,
        learning_rate=rate,
        seed=space.seed(position),
        updates=settled_length(space, *pair, target=target),
        reason=reason,
        stopping_cumulative_lr=float(f"{target:.3g}"),
    )


def _patience(runs: Sequence[Run], pair: tuple[int, float]) -> int:
    """Factor on the length of a run: doubled for each earlier run at this pair that could not be judged, beyond
    those that could."""
    here = [run for run in runs if (run.sync_interval, run.learning_rate) == pair]
    unclear = sum(run.verdict is Verdict.INCONCLUSIVE for run in here)
    return int(2 ** min(max(2 * unclear - len(here), 0), 3))


def _bracketing(runs: Sequence[Run], space: DesignSpace, round_size: int) -> list[tuple[int, float]]:
    """A bracketed rate at each interval, those with the fewest runs first."""
    counts = {S: sum(run.sync_interval == S for run in runs) for S in sorted(set(space.sync_intervals))}
    order = sorted(counts, key=lambda interval: (counts[interval], interval))
    low, high = space.learning_rates
    default = _two_digits(math.sqrt(low * high))
    return [(interval, bracket(runs, interval) or default) for interval in order[:round_size]]


def _most_telling(
    posterior: Posterior,
    pairs: Sequence[tuple[int, float]],
    space: DesignSpace,
    *,
    target: float,
    weights: Mapping[int, float],
    round_size: int,
) -> list[tuple[int, float]]:
    """Greedy choice among `pairs`; each pick splits the draws by its outcome before the next one is judged."""
    draws = _thinned(posterior)
    chance, cost = _outcomes(draws, pairs, space, target)
    intervals = sorted(weights)
    goals = np.stack([log_eta_at_risk(draws, interval, space.risk) for interval in intervals], axis=1)
    share = np.array([weights[interval] for interval in intervals]) / sum(weights.values())
    branches = np.full((1, len(draws.log_B)), 1.0 / len(draws.log_B))
    picked: list[int] = []
    for _ in range(round_size):
        score = (_spread(branches, goals) - _spread_after(branches, chance, goals)) @ share / cost
        best = int(np.argmax(score))
        picked.append(best)
        branches = _split(branches, chance[best])
    return [pairs[index] for index in picked]


def _candidates(runs: Sequence[Run], space: DesignSpace) -> list[tuple[int, float]]:
    """All (S, eta): swept intervals times a log grid, fourfold beyond what was planned or tested."""
    tested = [*space.learning_rates, *(run.learning_rate for run in runs if is_used(run))]
    low, high = min(tested) / WIDEN, max(tested) * WIDEN
    steps = math.floor(math.log(high / low) / math.log(GRID_RATIO) + 1e-9)
    rates = [_two_digits(low * GRID_RATIO**step) for step in range(steps + 1)]
    return [(interval, rate) for interval in sorted(set(space.sync_intervals)) for rate in rates]


def _outcomes(
    draws: Posterior, pairs: Sequence[tuple[int, float]], space: DesignSpace, target: float
) -> tuple[Floats, Floats]:
    """P(collapse within the run) [K, D] and expected updates [K]; a collapsed run is ended early."""
    budget = float(np.exp(np.median(draws.log_B)))
    chance = np.empty((len(pairs), len(draws.log_B)))
    cost = np.empty(len(pairs))
    for k, (interval, rate) in enumerate(pairs):
        updates = settled_length(space, interval, rate, target=target)
        noticed = max(updates - space.window_at(interval), 0)
        reached = cumulative_learning_rate(noticed, peak=rate, warmup=space.warmup)
        chance[k] = collapse_probability(draws, interval, rate, reached)
        certain = max(rule.CERTAIN_DEEP_UPDATES, rule.CERTAIN_DEEP_AGE * interval)
        ended = min(updates, budget / rate + space.warmup / 2 + interval / 2 + certain)
        mean = float(np.mean(chance[k]))
        cost[k] = mean * ended + (1 - mean) * updates
    return chance, cost


def _spread(branches: Floats, goals: Floats) -> Floats:
    """Expected variance of each goal [D, J] over branches [R, D] that sum to one; shape [J]."""
    first, second = branches @ goals, branches @ goals**2
    return np.asarray((second - _squared(first, branches.sum(axis=1)[:, None])).sum(axis=0), dtype=np.float64)


def _spread_after(branches: Floats, chance: Floats, goals: Floats) -> Floats:
    """The same once the outcome of each candidate [K, D] is known too; shape [K, J]."""
    weighted = np.concatenate([branches[None], branches[None] * goals.T[:, None, :]])  # [1 + J, R, D]
    outcomes = (weighted @ chance.T, weighted @ (1 - chance).T)  # each [1 + J, R, K]
    means = sum(_squared(part[1:], part[:1]) for part in outcomes)
    second = (branches @ goals**2).sum(axis=0)
    return np.asarray(second - np.sum(means, axis=1).T, dtype=np.float64)


def _squared(first: Floats, mass: Floats) -> Floats:
    """first^2 / mass, 0 where there is no mass."""
    return np.asarray(first**2 / np.maximum(mass, 1e-300), dtype=np.float64)


def _split(branches: Floats, chance: Floats) -> Floats:
    """Branches by the outcome of a picked run; the least likely are merged once there are too many."""
    both = np.concatenate([branches * chance, branches * (1 - chance)])
    order = np.argsort(-both.sum(axis=1), kind="stable")
    kept, rest = both[order[: MAX_BRANCHES - 1]], both[order[MAX_BRANCHES - 1 :]]
    return np.concatenate([kept, rest.sum(axis=0, keepdims=True)]) if len(rest) else kept


def _thinned(posterior: Posterior) -> Posterior:
    stride = math.ceil(len(posterior.log_B) / MAX_DRAWS)
    fields = ("boundary", "log_C", "alpha", "log_eta_0", "sigma_C", "log_B", "sigma_B")
    return Posterior(**{name: getattr(posterior, name)[::stride] for name in fields})


def _two_digits(rate: float) -> float:
    return float(f"{rate:.1e}")
