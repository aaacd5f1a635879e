from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from trainer.config import RunConfig, cumulative_learning_rate, learning_rate_at


@given(peak=st.floats(1e-8, 1), warmup=st.integers(0, 50), version=st.integers(0, 300))
def test_cumulative_rate_is_the_sum_of_the_applied_rates(peak: float, warmup: int, version: int) -> None:
    applied = sum(learning_rate_at(u, peak=peak, warmup=warmup) for u in range(version))
    assert cumulative_learning_rate(version, peak=peak, warmup=warmup) == pytest.approx(applied, rel=1e-9)


@pytest.mark.parametrize(
    "bad",
    [
        {"sync_interval": 0},
        {"learning_rate": -1e-3},
        {"updates": 0},
        {"no_such_key": 1},
        {"trainer": {"group_size": 1}},
        {"trainer": {"epsilon": 0}},
        {"trainer": {"warmup": 500}},
    ],
)
def test_bad_values_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        RunConfig.model_validate(bad)


def test_digest_depends_on_every_value() -> None:
    assert RunConfig().digest() == RunConfig().digest()
    assert RunConfig().digest() != RunConfig(seed=1).digest()
