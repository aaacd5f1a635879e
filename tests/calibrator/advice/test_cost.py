from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from calibrator.advice.cost import CostModel, TimedCycles, _line, cost_from_timings
from calibrator.errors import CorruptStudyError, NothingToSayError

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


def timed(batch: int, updates: int, noise: float = 1.0) -> dict[str, float]:
    """A cycle whose seconds follow known terms."""
    rows = batch * updates
    return {
        "generate": noise * (0.05 + 2e-4 * rows),
        "score": noise * 1e-5 * rows,
        "learn": noise * updates * (0.02 + 8e-4 * batch),
        "synchronize": 0.01,
        "updates": updates,
    }


def test_terms_are_found_again_and_predict_other_settings() -> None:
    swept = [timed(128, S, noise) for S in (1, 4, 16) for noise in (0.95, 1.0, 1.05)]
    others = [TimedCycles(batch, [timed(batch, 4)] * 3) for batch in (32, 512)]
    cost = cost_from_timings(swept, **SETTING, others=others)
    for S, P, G in ((8, 4, 16), (2, 16, 16), (12, 8, 32)):
        row = timed(P * G, S)
        truth = sum(row[part] for part in ("generate", "score", "learn", "synchronize")) / S
        assert cost.seconds_at(S, P, G) == pytest.approx(truth, rel=1e-3)
    assert cost.seconds_at(4, 8, 16) == cost.seconds_per_update(4)


def test_a_call_of_the_engine_is_shared_by_the_updates_of_a_cycle() -> None:
    cost = cost_from_timings([timed(128, S) for S in (1, 4, 16)] * 2, **SETTING)
    gained = cost.seconds_per_update(1) - cost.seconds_per_update(16)
    assert gained == pytest.approx((0.05 + 0.01) * (1 - 1 / 16), rel=1e-3)


def test_one_batch_alone_predicts_no_other() -> None:
    cost = cost_from_timings([timed(128, S) for S in (1, 4, 16)], **SETTING)
    with pytest.raises(NothingToSayError, match="never timed"):
        cost.seconds_at(4, 4, 16)
    assert cost.seconds_at(4, 16, 8) == cost.seconds_per_update(4)  # as many trajectories


def test_one_interval_alone_has_no_terms() -> None:
    assert cost_from_timings([row()] * 3, **SETTING).terms is None


@settings(deadline=None, max_examples=40)
@given(
    seconds=st.dictionaries(st.integers(1, 10_000), st.floats(1e-6, 100), min_size=2, max_size=6),
)
def test_terms_are_never_negative(seconds: dict[int, float]) -> None:
    a, b = _line(seconds)
    assert a >= 0
    assert b >= 0
    assert a + b > 0
