"""The three stability boundaries that are fitted side by side.

`power` is the published form (arXiv 2607.01083 v3 has alpha = 1); `ceiling` and `constant` are assumed forms.
S_eff is 1 + the largest lag before onset, in updates; eta is a learning rate.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrator.laws.types import BoundaryName

Floats = NDArray[np.float64]

POWER, CEILING, CONSTANT = 0, 1, 2

NAMES: dict[int, BoundaryName] = {POWER: "power", CEILING: "ceiling", CONSTANT: "constant"}
"""Name in `fit.json` of each boundary index."""


def power(S_eff: ArrayLike, log_C: ArrayLike, alpha: ArrayLike) -> Floats:
    """log eta_max of eta_max = C S_eff^-alpha; arguments broadcast. C is in LR x updates^alpha."""
    return np.asarray(log_C - np.multiply(alpha, np.log(S_eff)), dtype=np.float64)


def ceiling(S_eff: ArrayLike, log_C: ArrayLike, log_eta_0: ArrayLike) -> Floats:
    """log eta_max of 1/eta_max = 1/eta_0 + (S_eff - 1)/C; arguments broadcast. C is in LR x updates."""
    with np.errstate(divide="ignore"):  # S_eff = 1 leaves eta_0 alone: log 0 is the right value
        log_staleness = np.log(np.subtract(S_eff, 1.0)) - log_C
    return np.asarray(-np.logaddexp(np.negative(log_eta_0), log_staleness), dtype=np.float64)


def constant(S_eff: ArrayLike, log_eta_0: ArrayLike) -> Floats:
    """log eta_max of eta_max = eta_0, in the broadcast shape of both arguments."""
    return np.add(np.zeros_like(S_eff, dtype=np.float64), log_eta_0, dtype=np.float64)


def log_eta_max(
    boundary: int, S_eff: ArrayLike, *, log_C: ArrayLike, alpha: ArrayLike, log_eta_0: ArrayLike
) -> Floats:
    """log eta_max of the boundary with this index; parameters that it lacks are ignored."""
    if boundary == POWER:
        return power(S_eff, log_C, alpha)
    if boundary == CEILING:
        return ceiling(S_eff, log_C, log_eta_0)
    return constant(S_eff, log_eta_0)
