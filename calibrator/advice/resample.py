"""What one estimator does to recorded groups at one epsilon, as sums over cycles that a bootstrap can draw again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from calibrator.advice.ratios import Floats, Groups, Ints, weights

DRAWS = 400
"""Bootstrap draws: two digits of a 90 % interval."""
TAIL = 0.95
BLOCK = 2
"""Neighbouring cycles that are drawn among each other."""
FIELDS = ("cap_activation", "lost_mass", "second_moment", "deviation", "ess", "signal")


@dataclass(frozen=True)
class Tally:
    """Sums [C, F] over each of C cycles and what they count [C, F]; every number of FIELDS is sum / count."""

    sums: Floats
    counts: Floats

    def means(self) -> dict[str, float]:
        """Each field over all cycles."""
        return dict(zip(FIELDS, (self.sums.sum(axis=0) / self.counts.sum(axis=0)).tolist(), strict=True))

    def drawn(self, weights: Floats) -> dict[str, Floats]:
        """Each field [B] with cycles counted `weights` [B, C] times."""
        sums, counts = weights @ self.sums, weights @ self.counts
        whole = np.broadcast_to(self.sums.sum(axis=0) / self.counts.sum(axis=0), sums.shape).copy()
        means = np.divide(sums, counts, out=whole, where=counts > 0)  # a draw may miss what was thinned
        return dict(zip(FIELDS, means.T, strict=True))


def tally(groups: Groups, epsilon: float, estimator: str, *, source: Groups, signal: Floats) -> Tally:
    """What the cap does to `groups`, which were made from the recorded ones, `source`, with `signal` [K] of these."""
    ratio = np.exp(groups.log_ratio)
    omega = weights(ratio, epsilon, estimator)
    # What the cap looks at: the mean ratio of a group, or each trajectory's own.
    seen = ratio.mean(axis=1, keepdims=True) if estimator == "gmc" else ratio
    acts, deviation = np.mean(seen > 1 + epsilon, axis=1), np.mean((seen - 1) ** 2, axis=1)
    lost = np.maximum(np.mean(ratio, axis=1) - np.mean(omega, axis=1), 0.0)
    cycles = np.unique(source.cycle)
    batch_cycle, share = _effective_shares(omega, groups)
    columns = [
        *((groups.cycle, each) for each in (acts, lost, np.mean(omega**2, axis=1), deviation)),
        (batch_cycle, share),
        (source.cycle, signal),
    ]
    summed = [_by_cycle(cycles, cycle, values) for cycle, values in columns]
    sums, counts = zip(*summed, strict=True)
    return Tally(np.column_stack(sums), np.column_stack(counts))


def bound(deviation: float, epsilon: float, estimator: str) -> float:
    """Bound on the lost ratio mass from E[(x - 1)^2] = `deviation`; x is the group's mean ratio for gmc, else r.

    (x - 1 - eps)_+ <= (x - 1)^2 / (4 eps) for every x; tic_zero also loses 1 + eps wherever r > 1 + eps, which by
    Chebyshev's inequality happens with probability deviation / eps^2 at most. [derived]
    """
    dropped = (1 + epsilon) * deviation / epsilon**2 if estimator == "tic_zero" else 0.0
    return deviation / (4 * epsilon) + dropped


def resampled(cycles: int, seed: int) -> Floats:
    """How often each of C cycles counts in each draw [B, C], drawn among BLOCK neighbours.

    Cycles of a run differ by its age (warm-up, what is learnt already) in a way that another run repeats; only what
    neighbours differ by is chance, and even that holds some of the trend: early cycles change fastest.
    """
    rng = np.random.default_rng([seed, cycles])
    sizes = [part.size for part in np.array_split(np.arange(cycles), blocks(cycles))]
    return np.hstack([rng.multinomial(n, np.full(n, 1 / n), size=DRAWS) for n in sizes]).astype(np.float64)


def blocks(cycles: int) -> int:
    """Number of blocks of BLOCK neighbouring cycles or a few more."""
    return max(1, cycles // BLOCK)


def interval(value: float, draws: Floats, cycles: int) -> tuple[float, float] | None:
    """90 % interval of a positive number from its bootstrap draws [B]; None where nothing was seen.

    exp(+- t s) about the value: positive numbers with long upper tails. s is the relative standard deviation of the
    draws. It is widened by sqrt(C / (C - K)) and taken with Student's t of C - K for K blocks, since a few cycles
    vary less among themselves than they do from others.
    """
    free = cycles - blocks(cycles)
    if free < 1 or value <= 0 or not np.isfinite(value):
        return None
    spread = float(np.std(draws)) / value * np.sqrt(cycles / free) * float(stdtrit(free, TAIL))
    return value * float(np.exp(-spread)), value * float(np.exp(spread))


def _effective_shares(omega: Floats, groups: Groups) -> tuple[Ints, Floats]:
    """(sum omega)^2 / (N sum omega^2) of the batch of each update, and its cycle."""
    _, first_row, batch = np.unique(groups.update, return_index=True, return_inverse=True)
    first = np.bincount(batch, weights=omega.sum(axis=1))
    second = np.bincount(batch, weights=(omega**2).sum(axis=1))
    count = np.bincount(batch) * omega.shape[1]
    share = np.divide(first**2, count * second, out=np.zeros_like(first), where=second > 0)
    return groups.cycle[first_row], share


def _by_cycle(cycles: Ints, cycle: Ints, values: Floats) -> tuple[Floats, Floats]:
    """Sum and number [C] of `values` in each of `cycles` [C]."""
    at = np.searchsorted(cycles, cycle)
    sums = np.bincount(at, weights=values, minlength=cycles.size).astype(np.float64)
    return sums, np.bincount(at, minlength=cycles.size).astype(np.float64)
