"""Draws from the posterior of one stratum, the three boundaries mixed by their posterior weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

POWER, CEILING, CONSTANT = 0, 1, 2


@dataclass(frozen=True)
class Posterior:
    """Equally weighted draws; every array has length D. Parameters that a draw's boundary lacks are NaN."""

    boundary: NDArray[np.int64]
    """POWER, CEILING or CONSTANT."""
    log_C: Floats
    alpha: Floats
    log_eta_0: Floats
    sigma_C: Floats
    log_B: Floats
    sigma_B: Floats
