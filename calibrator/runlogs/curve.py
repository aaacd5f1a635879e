"""A run as arrays, whatever log it was read from: the input of the verdicts and of the figures."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """One reward series. All arrays have length n, one entry an observation, sorted by version.

    `version[i]` is the policy version whose reward `value[i]` is, with standard error `se[i]` (NaN where it
    is not known). `seen[i]` is the number of updates that the run had made when the observation was there.
    """

    name: str
    version: Floats
    value: Floats
    se: Floats
    seen: Floats

    def until(self, updates: int) -> Series:
        """The observations that were there after `updates` updates."""
        keep = self.seen <= updates
        return Series(self.name, self.version[keep], self.value[keep], self.se[keep], self.seen[keep])


@dataclass(frozen=True)
class Curve:
    """A run's log. Arrays over updates have length `updates`; NaN stands for what the log does not hold."""

    updates: int
    learning_rate: Floats
    """eta_u at every update u."""
    rewards: Series
    """Rewards of the rollouts: they belong to the version that made them."""
    probes: Series | None = None
    """The learner's own reward on held-out prompts: known for its version exactly."""
    others: tuple[Series, ...] = ()
    """Further series that may testify (accuracy beside a format reward)."""
    witnesses: dict[str, Floats] = field(default_factory=dict)
    """Per update: entropy, grad_norm, grad_cosine, ess, response_length, truncated, group_mass_max, ..."""
    non_finite_update: int | None = None
    """First update with a non-finite loss, gradient or ratio."""
    max_lag: int | None = None
    """Largest lag in the log, in updates."""
    warnings: tuple[str, ...] = ()

    def until(self, updates: int) -> Curve:
        """The log as it stood after `updates` updates, of which it holds at least so many."""
        broken = self.non_finite_update
        return replace(
            self,
            updates=updates,
            learning_rate=self.learning_rate[:updates],
            rewards=self.rewards.until(updates),
            probes=None if self.probes is None else self.probes.until(updates),
            others=tuple(series.until(updates) for series in self.others),
            witnesses={name: values[:updates] for name, values in self.witnesses.items()},
            non_finite_update=broken if broken is not None and broken < updates else None,
        )

    def cumulative_lr(self, version: float) -> float:
        """L(version): sum of the applied rates before `version`, linear within an update; NaN if unknown."""
        whole = min(int(version), self.updates)
        part = (version - whole) * self.learning_rate[whole] if whole < self.updates else 0.0
        return float(self.learning_rate[:whole].sum() + part)
