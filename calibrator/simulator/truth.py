"""Known parameters from which runs are simulated, and the outcomes that they give.

The mixture cure model of `calibrator.laws.likelihood`, drawn from instead of fitted: it tests verdicts, intervals
and designs, and never stands in for a run of a user's study. Units: eta in LR, S and lengths in updates, L, B and C
in LR x updates.
"""
# ruff: noqa: N815 (C, B and S are the symbols of the laws)

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from calibrator.laws import boundaries
from calibrator.laws.boundaries import NAMES
from calibrator.laws.types import BoundaryName, Run
from calibrator.runlogs.curve import Floats
from calibrator.verdicts import settings as rule
from calibrator.verdicts.types import Verdict

INDEX = {name: index for index, name in NAMES.items()}
NOTICED = 24
"""Updates that a log must go on after the onset so that its end shows the fall, where one sync is not longer."""


@dataclass(frozen=True)
class Truth:
    """The world of one simulated study. Parameters that the boundary does not have stay NaN."""

    boundary: BoundaryName
    B: float
    C: float = math.nan
    alpha: float = math.nan
    eta_0: float = math.nan
    sigma_C: float = 0.2
    sigma_B: float = 0.25
    gamma: float = 0.0
    beta: float = 1.0
    S_ref: float = 8.0
    eta_ref: float = 1e-3

    def log_eta_max(self, S_eff: float) -> float:
        """Log of the rate at which half of the runs are prone to collapse."""
        return float(
            boundaries.log_eta_max(
                INDEX[self.boundary],
                S_eff,
                log_C=math.log(self.C),
                alpha=self.alpha,
                log_eta_0=math.log(self.eta_0),
            )
        )

    def eta_at_risk(self, S_eff: float, risk: float = 0.05) -> float:
        """The true safe maximum: the largest eta with P(prone | S, eta) <= risk."""
        return math.exp(self.log_eta_max(S_eff) + self.sigma_C * float(ndtri(risk)))

    def collapse_at(self, rng: np.random.Generator, S_eff: float, eta: float) -> float:
        """L at which a run with largest rate `eta` collapses; infinite when it is not prone."""
        height, spread = rng.standard_normal(2)
        if math.log(eta) < self.log_eta_max(S_eff) + self.sigma_C * height:
            return math.inf
        return self.budget(S_eff, eta) * math.exp(self.sigma_B * spread)

    def budget(self, S_eff: float, eta: float) -> float:
        """Median L at which a prone run collapses."""
        drift = self.gamma * math.log(S_eff / self.S_ref) + (1 - self.beta) * math.log(eta / self.eta_ref)
        return self.B * math.exp(drift)


def generator(world: int, sync_interval: int, learning_rate: float, seed: int) -> np.random.Generator:
    """Random numbers of one run: a function of the world and of the run alone, whatever was run before."""
    rate = np.float64(learning_rate).view(np.uint64)
    return np.random.default_rng([world, sync_interval, int(rate), seed])


def simulated_run(
    truth: Truth,
    *,
    sync_interval: int,
    learning_rate: float,
    updates: int,
    seed: int,
    world: int = 0,
    rates: Floats | None = None,
    estimator: str = "gmc",
) -> Run:
    """A judged lockstep run of at most `updates` updates: its onset known to one sync, ended when that is certain.

    `rates` [updates] are the applied rates, constant without; `learning_rate` is then their largest. A fall too near
    to the end of the run to be confirmed makes it inconclusive, as in a real log.
    """
    applied = np.full(updates, learning_rate) if rates is None else rates[:updates]
    clock = np.concatenate(([0.0], np.cumsum(applied)))
    dies_at = truth.collapse_at(
        generator(world, sync_interval, learning_rate, seed), sync_interval, learning_rate
    )
    version = int(np.searchsorted(clock, dies_at))  # first version with L >= dies_at; updates + 1 when none
    common = {
        "run": f"S{sync_interval}-lr{learning_rate:g}-{seed}",
        "estimator": estimator,
        "sync_interval": sync_interval,
        "max_lag": sync_interval - 1,
        "learning_rate": learning_rate,
        "seed": seed,
    }
    if version > updates:
        return Run(
            **common, updates=updates, verdict=Verdict.STABLE, cumulative_lr=rounded_clock(clock[updates])
        )
    if version + max(NOTICED, sync_interval) > updates:
        return Run(
            **common,
            updates=updates,
            verdict=Verdict.INCONCLUSIVE,
            cumulative_lr=rounded_clock(clock[updates]),
        )
    low = max(version - 1, 0) // sync_interval * sync_interval
    high = low + sync_interval
    certain = version + math.ceil(max(rule.CERTAIN_DEEP_UPDATES, rule.CERTAIN_DEEP_AGE * sync_interval))
    made = min(updates, certain)
    return Run(
        **common,
        updates=made,
        verdict=Verdict.COLLAPSED,
        cumulative_lr=rounded_clock(clock[made]),
        onset_low=float(low),
        onset_high=float(min(high, made)),
        cumulative_lr_onset_low=rounded_clock(clock[low]),
        cumulative_lr_onset_high=rounded_clock(clock[min(high, made)]),
    )


def rounded_clock(value: float) -> float:
    """L to twelve digits: sums of equal rates must not differ by how they were added."""
    return float(f"{value:.12g}")
