"""The mean-field model of a collapse: how far the bias of stale gradients has carried the policy.

Ours, derived, and only for tests. The direction of the bias feeds back on itself from one sync cycle to the next; its
alignment m multiplies in proportion to log(eta / eta_max(S)), so that it persists above the boundary and dies out
below, where gradient noise alone (the term 1/eta_0 of the ceiling) can be what carries it above. The optimizer's
normalisation saturates the speed at m = 1, hence the displacement x grows by at most the applied learning rate, and the
policy leaves its validity region (x = 1) when L is about the budget B, whatever S is.
"""

from __future__ import annotations

import numpy as np

from calibrator.runlogs.curve import Floats
from calibrator.simulator.truth import Truth, generator

GROWTH = 3000.0
"""e-folds of the alignment per budget of L and unit of log feedback: the switch is sharp, as the law has it."""
CHANCE = 0.1
"""Alignment of the first gradients."""
BEYOND = 1.0
"""Displacement at which the policy leaves the region in which its gradients still improve it."""


def displacement(log_feedback: Floats, budget: Floats, clock: Floats) -> Floats:
    """x of every version, [n, T + 1], for n runs with `log_feedback` [n] and `budget` [n] on their clocks L(v).

    The solution of dm/ds = GROWTH log_feedback m, m <= 1, dx/ds = m with s = L / budget and m(0) = CHANCE.
    """
    spent = clock / budget[:, None]
    growth = np.where(log_feedback == 0.0, 1e-12, GROWTH * log_feedback)[:, None]
    saturates = np.where(growth > 0.0, np.log(1.0 / CHANCE) / np.abs(growth), np.inf)
    x = CHANCE * np.expm1(growth * np.minimum(spent, saturates)) / growth
    return np.asarray(x + np.maximum(spent - saturates, 0.0), dtype=np.float64)


def exits(x: Floats) -> Floats:
    """First version beyond the validity region, [n]; NaN for a run that stays inside."""
    beyond = x >= BEYOND
    return np.where(beyond.any(axis=1), beyond.argmax(axis=1), np.nan)


def run_parameters(
    truth: Truth, S_eff: int, learning_rate: float, seeds: np.ndarray, *, world: int = 0
) -> tuple[Floats, Floats]:
    """Log feedback and budget of each run, both [n]: the very numbers from which `Truth.collapse_at` decides."""
    normal = np.array([generator(world, S_eff, learning_rate, seed).standard_normal(2) for seed in seeds])
    log_feedback = np.log(learning_rate) - truth.log_eta_max(S_eff) - truth.sigma_C * normal[:, 0]
    return log_feedback, truth.budget(S_eff, learning_rate) * np.exp(truth.sigma_B * normal[:, 1])
