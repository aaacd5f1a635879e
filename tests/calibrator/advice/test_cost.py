from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from calibrator.advice.cost import CostModel, cost_from_timings
from calibrator.errors import CorruptStudyError

SETTING = {"prompts_per_update": 8, "group_size": 16, "response_length": 9.0}


def row(scale: float = 1.0, updates: int = 4) -> dict[str, float]:
    seconds = {"generate": 2.0, "score": 0.4, "learn": 3.0, "synchronize": 0.5}
    return {name: scale * value for name, value in seconds.items()} | {"updates": updates}


def test_medians_per_update_ignore_a_cold_first_cycle() -> None:
    cost = cost_from_timings([row(50.0), row(), row(), row(1.1), row(0.9)], **SETTING)
    assert (cost.generate, cost.score, cost.learn, cost.synchronize) == (0.5, 0.1, 0.75, 0.5)
    assert cost.origin == "measured"


def test_synchronization_is_counted_once_a_cycle_whatever_its_length() -> None:
    cost = cost_from_timings([row(updates=64)] * 3, **SETTING)
    assert cost.synchronize == 0.5
    assert cost.generate == pytest.approx(2.0 / 64, rel=1e-3)


def test_colocated_adds_and_separate_overlaps(cost: CostModel) -> None:
    assert cost.seconds_per_update(4) == pytest.approx(0.05 + 0.01 + 0.06 + 0.1)
    separate = cost.model_copy(update={"placement": "separate"})
    assert separate.seconds_per_update(4) == pytest.approx(max(0.06, 0.06) + 0.1)


@settings(deadline=None, max_examples=40)
@given(S=st.integers(1, 1000))
def test_a_longer_interval_never_costs_more(cost: CostModel, S: int) -> None:
    assert cost.seconds_per_update(S + 1) <= cost.seconds_per_update(S)


@pytest.mark.parametrize("rows", [[], [row(updates=0)], [{"generate": 1.0, "updates": 1}]])
def test_timings_that_tell_nothing_are_refused(rows: list[dict[str, float]]) -> None:
    with pytest.raises(CorruptStudyError):
        cost_from_timings(rows, **SETTING)


def test_a_cost_of_nothing_is_refused(cost: CostModel) -> None:
    free = cost.model_dump() | {"generate": 0, "score": 0, "learn": 0}
    with pytest.raises(ValidationError, match="takes no time"):
        CostModel.model_validate(free)


def test_json_round_trip(cost: CostModel) -> None:
    assert CostModel.model_validate_json(cost.model_dump_json()) == cost
