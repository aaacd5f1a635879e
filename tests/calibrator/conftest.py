"""A recommendation to change and hand over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from calibrator.advice.types import FrontierRow, Recommendation, ValidFor
from calibrator.laws.types import Estimate


@pytest.fixture
def advice() -> Callable[..., Recommendation]:
    """Makes a recommendation with the given fields changed."""
    return _advice


def _advice(**changes: Any) -> Recommendation:
    row = FrontierRow(
        sync_interval=4,
        max_learning_rate=1e-3,
        learning_rate=1e-3,
        eta_max=Estimate(estimate=2e-3, low=1.5e-3, high=2.5e-3),
        collapse_probability=Estimate(estimate=0.01, low=0.0, high=0.05),
        seconds_per_update=0.1,
        progress_per_second=0.01,
        useful=True,
    )
    defaults: dict[str, Any] = {
        "sync_interval": 4,
        "max_lag": 3,
        "schedule": "lockstep",
        "learning_rate": 1e-3,
        "group_size": 16,
        "epsilon": 0.2,
        "estimator": "gmc",
        "horizon": 400,
        "risk": 0.05,
        "rule": "stable",
        "objective": "time",
        "collapse_probability": row.collapse_probability,
        "extrapolation": 0.9,
        "origin": {},
        "frontier": [row],
        "valid_for": ValidFor(
            model="m", task="t", code="c", setting="s", longest_cumulative_lr=0.4, sync_intervals=[4]
        ),
    }
    return Recommendation(**{**defaults, **changes})
