"""What other group sizes and thresholds would do, from recorded trajectory ratios and rewards alone.

No pair (G, epsilon) is trained: the laws hold for the swept pair, so this only suggests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from calibrator.advice.ratios import (
    Floats,
    Groups,
    RatioRecord,
    complete_groups,
    regroup,
    signal_shares,
    subsampled,
)
from calibrator.advice.resample import TAIL, Tally, bound, interval, resampled, tally
from calibrator.advice.types import Basis, Suggested, SuggestionRow
from calibrator.laws.posterior import rounded

GROUP_SIZES = (4, 8, 16, 32, 64, 128)
EPSILONS = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 4.0)
CAPPED = ("gmc", "tic", "tic_zero")
"""Estimators with a cap on trajectory ratios; the others have nothing that recorded ratios could tune."""
SIDE_BY_SIDE = ("gmc", "tic")
"""Estimators that every table shows, whichever was swept."""
FLAT = 0.1
"""Relative gain in the error proxy below which another pair is not worth naming; assumed."""
MODEST = 4.0
"""Largest factor by which a suggestion departs from the swept G or epsilon; assumed."""
WITH_INTERVAL = ("cap_activation", "lost_mass", "ess", "signal_per_rollout")


@dataclass(frozen=True)
class Source:
    """Groups that were recorded together, and the draws of their cycles."""

    groups: Groups
    basis: Basis
    weights: Floats
    """[B, C]."""


@dataclass(frozen=True)
class Rated:
    """A row with what a bootstrap needs."""

    row: SuggestionRow
    tally: Tally
    source: Source

    def proxies(self, batch: int) -> Floats:
        """The error proxy in each draw [B]."""
        drawn = self.tally.drawn(self.source.weights)
        return error_proxy(drawn["lost_mass"], drawn["second_moment"], drawn["signal"], batch)


def suggest(
    recorded: RatioRecord,
    *,
    estimator: str,
    group_size: int,
    epsilon: float,
    batch: int,
    probe: RatioRecord | None = None,
    seed: int = 0,
) -> Suggested:
    """The pair (G, epsilon) that recorded ratios favour at equal cost, `batch` = G P trajectories an update.

    `group_size` and `epsilon` are the swept pair. It is kept unless another lowers the error proxy by a tenth, and
    does so in 95 % of the bootstrap draws. Only pairs within a factor of four of it that need no extrapolation are
    suggested; the table shows all, for `gmc` and `tic` side by side. `probe` holds larger groups than those that were
    trained with. Pass trajectories from before the onset only: afterwards ratios look perfect.

    Raises NothingToSayError when no complete group was recorded.
    """
    if estimator not in CAPPED:
        reason = f"`{estimator}` has no cap on trajectory ratios: recorded ratios suggest nothing."
        return Suggested(group_size=group_size, epsilon=epsilon, reason=reason)
    sources = sources_of(recorded, probe, seed=seed)
    names = sorted({*SIDE_BY_SIDE, estimator})
    sizes, thresholds = sorted({*GROUP_SIZES, group_size}), sorted({*EPSILONS, epsilon})
    rated = [row for name in names for row in rate_pairs(sources, name, sizes, thresholds, seed=seed)]
    own = [each for each in rated if each.row.estimator == estimator]
    here = next(each for each in own if (each.row.group_size, each.row.epsilon) == (group_size, epsilon))
    options = [
        Option(each, *_gain(each, here, batch, seed)) for each in own if _within_reach(each, here, batch)
    ]
    best = max(options, key=lambda option: option.gain)
    chosen = best if best.gain >= FLAT and best.surely > 0 else None
    return Suggested(
        group_size=group_size if chosen is None else chosen.rated.row.group_size,
        epsilon=epsilon if chosen is None else chosen.rated.row.epsilon,
        reason=_kept(here.row, best) if chosen is None else _changed(here.row, chosen, batch),
        table=[each.row for each in rated],
    )


@dataclass(frozen=True)
class Option:
    rated: Rated
    gain: float
    """By how much the error proxy falls, relative."""
    surely: float
    """What the gain exceeds in 95 % of the draws."""


def rate_pairs(
    sources: Sequence[Source],
    estimator: str,
    group_sizes: Sequence[int] = GROUP_SIZES,
    epsilons: Sequence[float] = EPSILONS,
    *,
    seed: int = 0,
) -> list[Rated]:
    """One row for each pair; the same groups serve every epsilon, so that rows differ by it alone."""
    rated = []
    for group_size in group_sizes:
        source = _source_for(sources, group_size)
        groups = regroup(source.groups, group_size, np.random.default_rng([seed, group_size]))
        signal = signal_shares(source.groups.reward, group_size)
        rated += [_rated(groups, epsilon, estimator, source, signal) for epsilon in epsilons]
    return rated


def error_proxy(lost_mass: Floats, second_moment: Floats, signal: Floats, batch: int) -> Floats:
    """Squared bias plus variance of the gradient in units of one trajectory's, at N = `batch` trajectories.

    lost^2 + E[omega^2]/(N signal): the lost ratio mass stands for the bias, and groups without signal add
    nothing. Assumed: it ignores the noise between prompts, which favours small G, and how directions differ.
    """
    return np.asarray(lost_mass**2 + second_moment / (batch * np.maximum(signal, 1 / batch)))


def sources_of(recorded: RatioRecord, probe: RatioRecord | None = None, *, seed: int = 0) -> list[Source]:
    """What was recorded, and the probe if there is one, ready for `rate_pairs`."""
    groups = subsampled(complete_groups(recorded))
    found = [Source(groups, "recorded", resampled(np.unique(groups.cycle).size, seed))]
    if probe is not None:
        larger = complete_groups(probe)
        if larger.size > groups.size:
            # One moment of one run: its prompts are all that can be drawn again.
            larger = replace(larger, cycle=np.arange(len(larger.cycle)))
            found.append(Source(larger, "probe", resampled(len(larger.cycle), seed)))
    return found


def _source_for(sources: Sequence[Source], group_size: int) -> Source:
    """The first that holds groups so large; else the first, whose groups are then completed."""
    fitting = (source for source in sources if source.groups.size >= group_size)
    return next(fitting, replace(sources[0], basis="extrapolated"))


def _rated(groups: Groups, epsilon: float, estimator: str, source: Source, signal: Floats) -> Rated:
    counted = tally(groups, epsilon, estimator, source=source.groups, signal=signal)
    unbiased = 1 - 1 / groups.size  # the baseline of a group holds each of its own rewards
    means, drawn = counted.means(), counted.drawn(source.weights)
    means["signal_per_rollout"] = means["signal"] * means["ess"] * unbiased
    drawn["signal_per_rollout"] = drawn["signal"] * drawn["ess"] * unbiased
    cycles = source.weights.shape[1]
    found = {name: interval(means[name], drawn[name], cycles) for name in WITH_INTERVAL}
    row = SuggestionRow(
        estimator=estimator,
        group_size=groups.size,
        epsilon=epsilon,
        **{name: rounded(means[name]) for name in ("second_moment", "signal", *WITH_INTERVAL)},
        bound=rounded(bound(means["deviation"], epsilon, estimator)),
        intervals={name: (rounded(ends[0]), rounded(ends[1])) for name, ends in found.items() if ends},
        basis=source.basis,
        extrapolated=source.basis == "extrapolated",
    )
    return Rated(row, counted, source)


def _within_reach(each: Rated, here: Rated, batch: int) -> bool:
    size, threshold = each.row.group_size / here.row.group_size, each.row.epsilon / here.row.epsilon
    near = max(size, 1 / size, threshold, 1 / threshold) <= MODEST * (1 + 1e-9)
    return near and not each.row.extrapolated and each.row.group_size <= batch


def _gain(each: Rated, here: Rated, batch: int, seed: int) -> tuple[float, float]:
    """How far the error proxy falls, and what that exceeds in 95 % of the draws. Never across two sources: a row of
    the probe is compared with the swept pair in the same probe."""
    if each.source is not here.source:
        pair = ([here.row.group_size], [here.row.epsilon])
        here = rate_pairs([each.source], here.row.estimator, *pair, seed=seed)[0]
    ratio = _proxy(each.row, batch) / _proxy(here.row, batch)
    draws = 1 - each.proxies(batch) / here.proxies(batch)
    return 1 - ratio, float(np.quantile(draws, 1 - TAIL))


def _proxy(row: SuggestionRow, batch: int) -> float:
    lost, second, signal = (np.asarray(value) for value in (row.lost_mass, row.second_moment, row.signal))
    return float(error_proxy(lost, second, signal, batch))


def _kept(here: SuggestionRow, best: Option) -> str:
    start = "G and epsilon do not matter here: no recorded pair"
    if best.gain >= FLAT:
        start = "The recorded ratios are too few to prefer another pair: none surely"
    return (
        f"{start} lowers the error proxy by {FLAT:.0%} (best {best.gain:.0%}); the cap acts on "
        f"{here.cap_activation:.1%}, and {here.signal:.0%} of the groups carry signal."
    )


def _changed(here: SuggestionRow, option: Option, batch: int) -> str:
    chosen = option.rated.row
    return (
        f"At {batch} trajectories an update G = {chosen.group_size}, epsilon = {chosen.epsilon:g} lowers the "
        f"error proxy by {option.gain:.0%} (at least {option.surely:.0%} in 95 % of the bootstrap draws): lost ratio "
        f"mass {here.lost_mass:.2g} -> {chosen.lost_mass:.2g}, second moment {here.second_moment:.2g} -> "
        f"{chosen.second_moment:.2g}, groups with signal {here.signal:.0%} -> {chosen.signal:.0%}. Resampled, not "
        "trained: the boundary at this pair is unknown."
    )
