"""What other group sizes and thresholds would do, from recorded trajectory ratios and rewards alone.

Recorded groups are cut into smaller ones without replacement; larger ones are completed and labelled
extrapolated. No pair (G, epsilon) is trained: the laws hold for the swept pair, so this only suggests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from calibrator.advice.types import Suggested, SuggestionRow
from calibrator.errors import CorruptStudyError, NothingToSayError
from calibrator.laws.posterior import rounded

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

GROUP_SIZES = (4, 8, 16, 32, 64, 128)
EPSILONS = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 4.0)
CAPPED = ("gmc", "tic", "tic_zero")
"""Estimators with a cap on trajectory ratios; the others have nothing that recorded ratios could tune."""
FLAT = 0.1
"""Relative gain in the error proxy below which another pair is not worth naming; assumed."""
MOST = 400 * 128
"""Trajectories that are looked at; whole updates are taken at even strides beyond that."""
MODEST = 4.0
"""Largest factor by which a suggestion departs from the swept G or epsilon; assumed."""
LARGEST_LOG = 300.0
"""Ratios above e^300 count as that, so that sums and squares stay finite."""


@dataclass(frozen=True)
class RatioRecord:
    """N trajectories as recorded; a group is one prompt of one update."""

    update: Ints
    group: Ints
    reward: Floats
    lag: Ints
    log_ratio: Floats
    """log r over all response tokens."""

    def where(self, mask: NDArray[np.bool_]) -> RatioRecord:
        """The trajectories in `mask` [N], for example those before the onset or within a lag."""
        return RatioRecord(*(getattr(self, name)[mask] for name in FIELDS))


FIELDS = ("update", "group", "reward", "lag", "log_ratio")


@dataclass(frozen=True)
class Groups:
    """K complete groups of n trajectories, ordered by update."""

    update: Ints
    """[K]."""
    reward: Floats
    """[K, n]."""
    log_ratio: Floats
    """[K, n]."""

    @property
    def size(self) -> int:
        return int(self.reward.shape[1])


def read_ratios(folder: Path) -> RatioRecord:
    """All shards `ratios-*.safetensors` of a trial's folder, in the order of their names.

    Raises CorruptStudyError when there is no shard or one cannot be read.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    paths = sorted(folder.glob("ratios-*.safetensors"))
    if not paths:
        raise CorruptStudyError(
            f"{folder} holds no ratios-*.safetensors: record ratios and run the trial again"
        )
    columns: dict[str, list[NDArray[np.generic]]] = {name: [] for name in FIELDS}
    for path in paths:
        try:
            shard = load_file(path)
            for name in FIELDS:
                columns[name].append(shard[name])
        except (OSError, KeyError, SafetensorError) as error:
            raise CorruptStudyError(
                f"{path} is no shard of ratios ({error}): delete it and resume"
            ) from error
    return record({name: np.concatenate(parts) for name, parts in columns.items()})


def record(columns: dict[str, NDArray[np.generic]]) -> RatioRecord:
    """A record from arrays [N] under `update`, `group`, `reward`, `lag`, `log_ratio`."""
    return RatioRecord(
        update=columns["update"].astype(np.int64),
        group=columns["group"].astype(np.int64),
        reward=columns["reward"].astype(np.float64),
        lag=columns["lag"].astype(np.int64),
        log_ratio=columns["log_ratio"].astype(np.float64),
    )


def joined(records: Sequence[RatioRecord]) -> RatioRecord:
    """One record of several runs; updates are renumbered so that groups of different runs stay apart."""
    offset = 0
    columns: dict[str, list[NDArray[np.generic]]] = {name: [] for name in FIELDS}
    for part in records:
        for name in FIELDS:
            columns[name].append(getattr(part, name) + (offset if name == "update" else 0))
        offset += int(part.update.max(initial=-1)) + 1
    return record({name: np.concatenate(parts) for name, parts in columns.items()})


def complete_groups(recorded: RatioRecord) -> Groups:
    """Groups of the most frequent size; incomplete ones and those with a number missing are left out.

    Raises NothingToSayError when no group is left.
    """
    order = np.lexsort((recorded.group, recorded.update))
    update, group = recorded.update[order], recorded.group[order]
    log_ratio, reward = recorded.log_ratio[order], recorded.reward[order]
    new = np.ones(update.size, dtype=np.bool_)
    new[1:] = (np.diff(update) != 0) | (np.diff(group) != 0)
    starts = np.flatnonzero(new)
    sizes = np.diff(np.append(starts, update.size))
    if not sizes.size or (size := int(np.bincount(sizes).argmax())) < 2:
        raise NothingToSayError("no recorded group has two completions: record ratios with G of 2 or more")
    rows = starts[sizes == size][:, None] + np.arange(size)
    usable = ~np.isnan(log_ratio[rows]).any(axis=1) & np.isfinite(reward[rows]).all(axis=1)
    if not usable.any():
        raise NothingToSayError("every recorded group holds a ratio or reward that is no number")
    rows = rows[usable]
    return Groups(update[rows[:, 0]], reward[rows], np.clip(log_ratio[rows], -np.inf, LARGEST_LOG))


def regroup(groups: Groups, group_size: int, rng: np.random.Generator) -> Groups:
    """Groups of another size G from the same trajectories.

    G up to the recorded size n: random disjoint parts of each recorded group. Larger G: every recorded group
    is completed by trajectories of the same update, hence of the same lag and behaviour policy; their
    rewards are drawn from the group itself, so that its prompt keeps its pass rate.
    """
    K, n = groups.reward.shape
    if group_size > n:
        return _completed(groups, group_size, rng)
    order = rng.permuted(np.broadcast_to(np.arange(n), (K, n)), axis=1)
    parts = n // group_size
    take = order[:, : parts * group_size]
    shape = (K * parts, group_size)
    return Groups(
        np.repeat(groups.update, parts),
        np.take_along_axis(groups.reward, take, axis=1).reshape(shape),
        np.take_along_axis(groups.log_ratio, take, axis=1).reshape(shape),
    )


def _completed(groups: Groups, group_size: int, rng: np.random.Generator) -> Groups:
    """Every (G/n)-th group is completed, so that about as many trajectories are looked at as for other G."""
    n = groups.size
    missing = group_size - n
    kept = slice(None, None, -(-group_size // n))
    update = groups.update[kept]
    K = len(update)
    first = np.searchsorted(groups.update, update, side="left")
    last = np.searchsorted(groups.update, update, side="right")
    row = rng.integers(first[:, None], last[:, None], size=(K, missing))
    log_ratio = groups.log_ratio[row, rng.integers(n, size=(K, missing))]
    reward = np.take_along_axis(groups.reward[kept], rng.integers(n, size=(K, missing)), axis=1)
    return Groups(
        update, np.hstack([groups.reward[kept], reward]), np.hstack([groups.log_ratio[kept], log_ratio])
    )


def log_weights(log_ratio: Floats, epsilon: float, estimator: str) -> Floats:
    """log omega [K, G] of groups with these log-ratios; -inf where an estimator drops the trajectory.

    gmc: r min(1, (1 + eps) G / sum r) (arXiv 2610.01896 v1); tic: min(r, 1 + eps) (arXiv 2508.02833);
    tic_zero: the same differentiated through r, which leaves r where r <= 1 + eps and 0 elsewhere.
    """
    cap = np.log1p(epsilon)
    if estimator == "gmc":
        return np.asarray(log_ratio + np.minimum(0.0, cap - log_mass(log_ratio))[:, None], dtype=np.float64)
    if estimator == "tic":
        return np.asarray(np.minimum(log_ratio, cap), dtype=np.float64)
    return np.asarray(np.where(log_ratio <= cap, log_ratio, -np.inf), dtype=np.float64)


def log_mass(log_ratio: Floats) -> Floats:
    """log of the mean ratio of each group [K]; -inf for a group whose ratios are all zero."""
    return np.asarray(logsumexp(log_ratio, axis=1) - np.log(log_ratio.shape[1]), dtype=np.float64)


def signal_share(reward: Floats, group_size: int) -> float:
    """Share of random groups of G completions with both good and bad ones, from recorded groups [K, n].

    Exact for G up to n: 1 - sum over distinct rewards of C(m, G)/C(n, G), m completions having that reward.
    Larger G keeps the share at n, a lower bound.
    """
    n = reward.shape[1]
    drawn = min(group_size, n)
    same = (reward[:, :, None] == reward[:, None, :]).sum(axis=2)
    # A completion whose reward m share is in C(m, G)/m of the uniform groups of that reward.
    chance = np.ones(reward.shape)
    for taken in range(drawn):
        chance *= np.maximum(same - taken, 0) / (n - taken)
    return 1.0 - float(np.mean(np.sum(chance / same, axis=1)))


def suggestion_row(
    groups: Groups, epsilon: float, estimator: str, *, signal: float, extrapolated: bool
) -> SuggestionRow:
    """What `groups` show at one epsilon, with averages over trajectories or groups."""
    log_omega = log_weights(groups.log_ratio, epsilon, estimator)
    omega = np.exp(log_omega)
    if estimator == "gmc":
        mass = np.exp(log_mass(groups.log_ratio))
        acts, lost = mass > 1 + epsilon, np.maximum(mass - 1 - epsilon, 0.0)
    else:
        acts, lost = groups.log_ratio > np.log1p(epsilon), np.exp(groups.log_ratio) - omega
    return SuggestionRow(
        group_size=groups.size,
        epsilon=epsilon,
        cap_activation=rounded(float(np.mean(acts))),
        lost_mass=rounded(float(np.mean(lost))),
        second_moment=rounded(float(np.mean(omega**2))),
        ess=rounded(_effective_share(omega, groups.update)),
        signal=rounded(signal),
        extrapolated=extrapolated,
    )


def suggestion_table(
    recorded: Groups,
    estimator: str,
    *,
    group_sizes: Sequence[int] = GROUP_SIZES,
    epsilons: Sequence[float] = EPSILONS,
    seed: int = 0,
) -> list[SuggestionRow]:
    """One row for each pair; the same groups serve every epsilon, so that rows differ by it alone."""
    rows = []
    for group_size in group_sizes:
        groups = regroup(recorded, group_size, np.random.default_rng([seed, group_size]))
        signal = signal_share(recorded.reward, group_size)
        beyond = group_size > recorded.size
        rows += [
            suggestion_row(groups, epsilon, estimator, signal=signal, extrapolated=beyond)
            for epsilon in epsilons
        ]
    return rows


def error_proxy(row: SuggestionRow, batch: int) -> float:
    """Squared bias plus variance of the gradient in units of one trajectory's, at N = `batch` trajectories.

    lost^2 + E[omega^2]/(N signal): the lost ratio mass stands for the bias, and groups without signal add
    nothing. Assumed: it ignores the noise between prompts, which favours small G, and how directions differ.
    """
    return row.lost_mass**2 + row.second_moment / (batch * max(row.signal, 1 / batch))


def suggest(
    recorded: RatioRecord,
    *,
    estimator: str,
    group_size: int,
    epsilon: float,
    batch: int,
    seed: int = 0,
) -> Suggested:
    """The pair (G, epsilon) that recorded ratios favour at equal cost, `batch` = G P trajectories an update.

    `group_size` and `epsilon` are the swept pair. It is kept when no other lowers the error proxy by a tenth.
    Only pairs within a factor of four of it that need no extrapolation are suggested; the table shows all.
    Pass trajectories from before the onset only: afterwards ratios look perfect.

    Raises NothingToSayError when no complete group was recorded.
    """
    if estimator not in CAPPED:
        reason = f"`{estimator}` has no cap on trajectory ratios: recorded ratios suggest nothing."
        return Suggested(group_size=group_size, epsilon=epsilon, reason=reason)
    groups = _subsampled(complete_groups(recorded))
    sizes = sorted({*GROUP_SIZES, group_size})
    thresholds = sorted({*EPSILONS, epsilon})
    table = suggestion_table(groups, estimator, group_sizes=sizes, epsilons=thresholds, seed=seed)
    here = next(row for row in table if (row.group_size, row.epsilon) == (group_size, epsilon))
    within = [row for row in table if _within_reach(row, here, batch)]
    best = min([here, *within], key=lambda row: error_proxy(row, batch))
    chosen = best if _gain(best, here, batch) >= FLAT else here
    return Suggested(
        group_size=chosen.group_size,
        epsilon=chosen.epsilon,
        reason=_reason(chosen, here, best, batch),
        table=table,
    )


def _within_reach(row: SuggestionRow, here: SuggestionRow, batch: int) -> bool:
    size, threshold = row.group_size / here.group_size, row.epsilon / here.epsilon
    near = max(size, 1 / size, threshold, 1 / threshold) <= MODEST * (1 + 1e-9)
    return near and not row.extrapolated and row.group_size <= batch


def _gain(row: SuggestionRow, here: SuggestionRow, batch: int) -> float:
    return 1.0 - error_proxy(row, batch) / error_proxy(here, batch)


def _reason(chosen: SuggestionRow, here: SuggestionRow, best: SuggestionRow, batch: int) -> str:
    if chosen is here:
        return (
            f"G and epsilon do not matter here: no recorded pair lowers the error proxy by {FLAT:.0%} "
            f"(best {_gain(best, here, batch):.0%}); the cap acts on {here.cap_activation:.1%}, and "
            f"{here.signal:.0%} of the groups carry signal."
        )
    return (
        f"At {batch} trajectories an update G = {chosen.group_size}, epsilon = {chosen.epsilon:g} lowers the "
        f"error proxy by {_gain(chosen, here, batch):.0%}: lost ratio mass {here.lost_mass:.2g} -> "
        f"{chosen.lost_mass:.2g}, second moment {here.second_moment:.2g} -> {chosen.second_moment:.2g}, "
        f"groups with signal {here.signal:.0%} -> {chosen.signal:.0%}. Resampled, not trained: the boundary "
        "at this pair is unknown."
    )


def _effective_share(omega: Floats, update: Ints) -> float:
    """(sum omega)^2 / (N sum omega^2) of the batch of each update, averaged over updates."""
    _, batch = np.unique(update, return_inverse=True)
    first = np.bincount(batch, weights=omega.sum(axis=1))
    second = np.bincount(batch, weights=(omega**2).sum(axis=1))
    count = np.bincount(batch) * omega.shape[1]
    return float(np.mean(np.divide(first**2, count * second, out=np.zeros_like(first), where=second > 0)))


def _subsampled(groups: Groups) -> Groups:
    """Whole updates at an even stride when there are too many trajectories."""
    stride = int(np.ceil(groups.reward.size / MOST))
    if stride <= 1:
        return groups
    _, position = np.unique(groups.update, return_inverse=True)
    kept = position % stride == 0
    return Groups(groups.update[kept], groups.reward[kept], groups.log_ratio[kept])
