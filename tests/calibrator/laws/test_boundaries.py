"""The three boundaries: hand-computed values, limits and shapes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrator.laws.boundaries import CEILING, CONSTANT, POWER, ceiling, constant, log_eta_max, power

logs = st.floats(-20, 0)
intervals = st.integers(1, 4096)


def test_values_by_hand() -> None:
    assert np.exp(power(16, np.log(0.32), 1.0)) == pytest.approx(0.02)
    assert np.exp(power(16, np.log(0.32), 0.5)) == pytest.approx(0.08)
    # 1/eta_max = 1/0.1 + 15/0.3 = 60
    assert np.exp(ceiling(16, np.log(0.3), np.log(0.1))) == pytest.approx(1 / 60)
    assert np.exp(constant(16, np.log(0.1))) == pytest.approx(0.1)


@given(log_C=logs, log_eta_0=logs)
def test_on_policy_only_the_ceiling_binds(log_C: float, log_eta_0: float) -> None:
    assert float(ceiling(1, log_C, log_eta_0)) == pytest.approx(log_eta_0)


@given(S=intervals, log_C=logs, log_eta_0=logs)
def test_ceiling_lies_below_both_of_its_limits(S: int, log_C: float, log_eta_0: float) -> None:
    height = float(ceiling(S, log_C, log_eta_0))
    assert height <= log_eta_0 + 1e-9
    if S > 1:
        assert height <= log_C - np.log(S - 1) + 1e-9


@given(log_C=logs)
def test_ceiling_far_below_eta_0_is_the_power_law_with_alpha_one(log_C: float) -> None:
    # S - 1 against S differs by 1/S = 1e-3 at S = 1000.
    assert float(ceiling(1000, log_C, 50.0)) == pytest.approx(float(power(1000, log_C, 1.0)), abs=2e-3)


@given(S=intervals, log_C=logs, log_eta_0=logs, alpha=st.floats(0, 2))
def test_no_boundary_rises_with_staleness(S: int, log_C: float, log_eta_0: float, alpha: float) -> None:
    for boundary in (POWER, CEILING, CONSTANT):
        low, high = log_eta_max(boundary, np.array([S + 1, S]), log_C=log_C, alpha=alpha, log_eta_0=log_eta_0)
        assert low <= high + 1e-12


def test_arguments_broadcast() -> None:
    draws = np.zeros((5, 1))
    for boundary in (POWER, CEILING, CONSTANT):
        shape = log_eta_max(boundary, np.ones(3), log_C=draws, alpha=draws, log_eta_0=draws).shape
        assert shape == (5, 3)
