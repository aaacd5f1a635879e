"""Recorded trajectory ratios and rewards, in groups of any size.

Recorded groups are cut into smaller ones without replacement; larger ones are completed and are an extrapolation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibrator.errors import CorruptStudyError, NothingToSayError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST = 1600 * 128
"""Trajectories that are looked at; whole cycles are taken at even strides beyond that."""
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
    cycle: Ints
    """[K]: what was drawn from the same weights and varies together, see `complete_groups`."""
    reward: Floats
    """[K, n]."""
    log_ratio: Floats
    """[K, n]."""

    @property
    def size(self) -> int:
        return int(self.reward.shape[1])


LARGE_GROUPS = "group-ratios-*.safetensors"
"""The probe of larger groups, see `trainer.loop.group_probe`."""


def read_ratios(folder: Path, pattern: str = "ratios-*.safetensors") -> RatioRecord:
    """All shards of a trial's folder, in the order of their names.

    Raises CorruptStudyError when there is no shard or one cannot be read.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    paths = sorted(folder.glob(pattern))
    if not paths:
        raise CorruptStudyError(f"{folder} holds no {pattern}: record ratios and run the trial again")
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

    Their cycle is the version that drew them, which `joined` keeps apart for different runs.

    Raises NothingToSayError when no group is left.
    """
    order = np.lexsort((recorded.group, recorded.update))
    update, group = recorded.update[order], recorded.group[order]
    version = (recorded.update - recorded.lag)[order]
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
    first = rows[:, 0]
    return Groups(update[first], version[first], reward[rows], np.clip(log_ratio[rows], -np.inf, LARGEST_LOG))


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
        np.repeat(groups.cycle, parts),
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
        update,
        groups.cycle[kept],
        np.hstack([groups.reward[kept], reward]),
        np.hstack([groups.log_ratio[kept], log_ratio]),
    )


def weights(ratio: Floats, epsilon: float, estimator: str) -> Floats:
    """omega [K, G] of groups with these ratios.

    gmc: r min(1, (1 + eps) G / sum r) (arXiv 2610.01896 v1); tic: min(r, 1 + eps) (arXiv 2508.02833);
    tic_zero: the same differentiated through r, which leaves r where r <= 1 + eps and 0 elsewhere.
    """
    cap = 1 + epsilon
    if estimator == "gmc":
        mass = ratio.mean(axis=1, keepdims=True)
        return np.asarray(ratio * np.divide(cap, mass, out=np.ones_like(mass), where=mass > cap))
    if estimator == "tic":
        return np.asarray(np.minimum(ratio, cap))
    return np.asarray(np.where(ratio <= cap, ratio, 0.0))


def signal_shares(reward: Floats, group_size: int) -> Floats:
    """Of each recorded group [K, n], the share [K] of random groups of G among it with both good and bad completions.

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
    return np.asarray(1.0 - np.sum(chance / same, axis=1), dtype=np.float64)


def subsampled(groups: Groups) -> Groups:
    """Whole cycles at an even stride when there are too many trajectories: each keeps all of its lags."""
    stride = int(np.ceil(groups.reward.size / MOST))
    if stride <= 1:
        return groups
    _, position = np.unique(groups.cycle, return_inverse=True)
    kept = position % stride == 0
    return Groups(groups.update[kept], groups.cycle[kept], groups.reward[kept], groups.log_ratio[kept])
