"""Lengths of runs in other units than updates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrator.advice.horizon import Horizon, Measured, parse_horizon, updates_of, updates_within
from calibrator.errors import StudyConfigError

KNOWN = Measured(tokens_per_update=1152.0, data_set=1000, prompts_per_update=8)


@pytest.mark.parametrize(
    ("text", "amount", "unit"),
    [
        ("5000", 5000, "updates"),
        ("5_000 updates", 5000, "updates"),
        ("5e8tokens", 5e8, "tokens"),
        ("5E8 Tokens", 5e8, "tokens"),
        ("48h", 48, "hours"),
        ("1.5hours", 1.5, "hours"),
        (".5 h", 0.5, "hours"),
        ("3epochs", 3, "epochs"),
        ("1 epoch", 1, "epochs"),
    ],
)
def test_units_are_told_apart(text: str, amount: float, unit: str) -> None:
    assert parse_horizon(text) == Horizon(amount, unit, text.strip())


@pytest.mark.parametrize(
    "text", ["", "soon", "48d", "-3", "0", "0h", "2.5", "1e999", "5e8 tokens please", "2e9", "nan"]
)
def test_what_is_no_length_is_refused_with_what_is(text: str) -> None:
    with pytest.raises(StudyConfigError, match="--horizon"):
        parse_horizon(text)


def test_tokens_and_epochs_follow_from_what_was_measured() -> None:
    assert updates_of(parse_horizon("5e8tokens"), KNOWN) == round(5e8 / 1152)
    assert updates_of(parse_horizon("3epochs"), KNOWN) == 375
    assert updates_of(parse_horizon("1tokens"), KNOWN) == 1
    assert updates_of(parse_horizon("400"), Measured()) == 400


@pytest.mark.parametrize(
    ("text", "missing"),
    [("5e8tokens", "response tokens"), ("3epochs", "data set"), ("48h", "seconds per update")],
)
def test_what_was_not_measured_is_named(text: str, missing: str) -> None:
    with pytest.raises(StudyConfigError, match=missing):
        updates_of(parse_horizon(text), Measured())


@given(hours=st.floats(0.01, 1000), seconds=st.floats(0.01, 100))
def test_hours_hold_whole_updates_only(hours: float, seconds: float) -> None:
    updates = updates_within(hours, seconds)
    assert updates * seconds <= hours * 3600 * (1 + 1e-9)
    assert (updates + 1) * seconds > hours * 3600 * (1 - 1e-9)
