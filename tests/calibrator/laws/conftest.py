"""Studies simulated from the laws themselves, with known parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr

from calibrator.laws.boundaries import log_eta_max
from calibrator.laws.types import Run

TABLES = Path(__file__).parents[2] / "data" / "tables"
SIMULATED_B, SIMULATED_SIGMA_B, SIMULATED_SIGMA_C = 0.03, 0.3, 0.25

Simulate = Callable[..., list[Run]]


def simulate_study(
    seed: int,
    boundary: int,
    *,
    intervals: Sequence[int] = (1, 4, 16, 64),
    rates: Sequence[float] = (2e-4, 4e-4, 8e-4, 1.6e-3, 3.2e-3, 6.4e-3),
    repeats: int = 1,
    longest: float = 4 * SIMULATED_B,
    **place: float,
) -> list[Run]:
    """A grid of runs to L = `longest` each, with onsets rounded out to the sync interval."""
    rng = np.random.default_rng(seed)
    where = {"log_C": np.nan, "alpha": np.nan, "log_eta_0": np.nan} | place
    runs = []
    for S in intervals:
        height = float(log_eta_max(boundary, float(S), **where))
        for rate in rates:
            for repeat in range(repeats):
                prone = rng.random() < ndtr((np.log(rate) - height) / SIMULATED_SIGMA_C)
                onset = SIMULATED_B * np.exp(SIMULATED_SIGMA_B * rng.normal()) if prone else np.inf
                runs.append(_run(S, rate, repeat, float(onset), longest))
    return runs


def _run(S: int, rate: float, repeat: int, onset: float, longest: float) -> Run:
    updates = max(int(np.ceil(longest / rate)), 2 * S)
    dead = onset <= updates * rate
    low = float(np.floor(onset / rate / S) * S) if dead else None
    high = None if low is None else low + S
    return Run(
        run=f"S{S}-lr{rate:g}-{repeat}",
        estimator="gmc",
        sync_interval=S,
        max_lag=S - 1,
        learning_rate=rate,
        seed=repeat,
        updates=updates,
        verdict="collapsed" if dead else "stable",
        cumulative_lr=updates * rate,
        onset_low=low,
        onset_high=high,
        cumulative_lr_onset_low=None if low is None else low * rate,
        cumulative_lr_onset_high=None if high is None else high * rate,
    )


@pytest.fixture(scope="session")
def simulate() -> Simulate:
    return simulate_study


@pytest.fixture(scope="session")
def tables() -> Path:
    return TABLES
