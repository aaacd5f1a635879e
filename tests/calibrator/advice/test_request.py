from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrator.advice.request import effective_interval_of, interval_within, max_lag

SCHEDULES = ("lockstep", "overlap")


def test_largest_lags() -> None:
    assert max_lag(16, "lockstep") == 15
    assert max_lag(16, "overlap") == 31
    assert max_lag(16, "overlap", queued_cycles=0) == 15


def test_one_queued_cycle_takes_a_third_of_the_interval() -> None:
    assert interval_within(64, "lockstep") == 64
    assert interval_within(64, "overlap") == 21
    assert interval_within(2, "overlap") == 0


@pytest.mark.parametrize("schedule", SCHEDULES)
@settings(deadline=None, max_examples=40)
@given(effective=st.integers(1, 10_000), queued=st.integers(0, 5))
def test_the_converted_interval_is_the_largest_within_the_law(
    schedule: str, effective: int, queued: int
) -> None:
    S = interval_within(effective, schedule, queued)
    assert S == 0 or effective_interval_of(S, max_lag(S, schedule, queued)) <= effective
    assert effective_interval_of(S + 1, max_lag(S + 1, schedule, queued)) > effective


@given(S=st.integers(1, 500), queued=st.integers(0, 5))
def test_the_effective_interval_has_the_same_mean_lag(S: int, queued: int) -> None:
    lags = range(queued * S, (queued + 1) * S)
    assert effective_interval_of(S, lags[-1]) - 1 == pytest.approx(2 * sum(lags) / S)
