import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrator.laws.types import Estimate
from reports import numbers as n


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (0.0, "0"),
        (0.17, "0.17"),
        (1.0, "1.0"),
        (12.3, "12"),
        (315.2, "315"),
        (20_000, "20,000"),
        (0.0034, "3.4e-3"),
        (2.5e6, "2.5e6"),
        (-0.034, "-0.034"),
        (math.nan, "unknown"),
        (math.inf, "infinite"),
    ],
)
def test_significant(x: float, text: str) -> None:
    assert n.significant(x) == text


@pytest.mark.parametrize(
    ("x", "text"),
    [(1.6e-3, "1.6e-3"), (1e-3, "1e-3"), (1.78e-4, "1.78e-4"), (0.5, "5e-1"), (1.0, "1"), (10, "1e1")],
)
def test_rate(x: float, text: str) -> None:
    assert n.rate(x) == text


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (0, "0 %"),
        (1, "100 %"),
        (0.0004, "< 0.1 %"),
        (0.021, "2.1 %"),
        (0.43, "43 %"),
        (0.9996, "> 99.9 %"),
        (0.996, "99.6 %"),
    ],
)
def test_percent(p: float, text: str) -> None:
    assert n.percent(p) == text


@pytest.mark.parametrize(
    ("triple", "text"),
    [
        ((2.1e-3, 1.7e-3, 2.6e-3), "2.1e-3 [1.7e-3, 2.6e-3]"),
        ((1.04, 0.88, 1.21), "1.04 [0.88, 1.21]"),
        ((0.013, 0.0096, 0.018), "0.013 [0.010, 0.018]"),
        ((0.17, 0.01, 50.0), "0.17 [0.010, 50]"),
        ((0.0, 0.0, 0.0), "0 [0, 0]"),
        ((-0.03, -0.16, 0.09), "-0.03 [-0.16, 0.09]"),
        ((-0.0048, -0.25, 0.2), "0.00 [-0.25, 0.20]"),
        ((120.0, 80.0, 190.0), "120 [80, 190]"),
        ((0.5, 0.2, math.inf), "0.50 [0.20, infinite]"),
    ],
)
def test_interval(triple: tuple[float, float, float], text: str) -> None:
    estimate, low, high = triple
    assert n.interval(Estimate(estimate=estimate, low=low, high=high)) == text


@pytest.mark.parametrize(
    ("x", "text"),
    [(0.0021, "2.1 ms"), (0.181, "0.181 s"), (90, "90 s"), (2871, "47.9 min"), (90_000, "25 h")],
)
def test_seconds(x: float, text: str) -> None:
    assert n.seconds(x) == text


def test_span() -> None:
    assert n.span((16.0, 32.0)) == "(16, 32]"
    assert n.span((17.0, 17.0)) == "17"
    assert n.span(None) == "-"


def test_visible_shows_what_would_act() -> None:
    assert n.visible("a\x1b[31m\x07\u202e\n\t") == "a\\x1b[31m\\x07\\u202e\\n\\t"
    assert n.visible("Größe η 数") == "Größe η 数"


@given(st.text())
def test_visible_is_idempotent_and_harmless(text: str) -> None:
    once = n.visible(text)
    assert n.visible(once) == once
    assert all(ord(c) >= 32 and ord(c) != 127 for c in once)


def test_long_names_are_shortened_in_the_middle() -> None:
    short = n.name("a" * 200 + "end")
    assert len(short) <= n.LONGEST_NAME
    assert short.endswith("end")


def test_listing() -> None:
    assert n.listing(["a"]) == "a"
    assert n.listing(["a", "b", "c"]) == "a, b and c"
    assert n.listing([]) == "none"


def test_fixed_places_has_no_negative_zero() -> None:
    assert n.fixed_places(-0.001) == "0.00"
    assert n.fixed_places(-0.25) == "-0.25"
    assert n.fixed_places(math.nan) == "unknown"
