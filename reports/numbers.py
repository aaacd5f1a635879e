"""How numbers and names are written, the same in every format."""

from __future__ import annotations

import functools
import math
import unicodedata
from collections.abc import Callable
from typing import Concatenate, ParamSpec

from calibrator.laws.types import Estimate

LR_UPDATES = "LR x updates"
"""Unit of C, B and every cumulative learning rate."""

UNKNOWN = "unknown"
LONGEST_NAME = 160
_KEPT_INVISIBLE = {"\u200d"}
P = ParamSpec("P")
_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}


class Number(str):
    """A number as it is written, with the value that is behind it, so that JSON can carry both."""

    __slots__ = ("high", "low", "value")
    value: float
    """In the unit of the quantity: a share is a share, whatever the text says in per cent."""
    low: float | None
    high: float | None

    def __new__(cls, text: str, value: float, low: float | None = None, high: float | None = None) -> Number:
        """`low` and `high` are the ends of an interval, where there is one."""
        self = super().__new__(cls, text)
        self.value, self.low, self.high = float(value), low, high
        return self


def _written(form: Callable[Concatenate[float, P], str]) -> Callable[Concatenate[float, P], Number]:
    """The text of `form` together with its first argument."""

    @functools.wraps(form)
    def wrapped(x: float, /, *args: P.args, **kwargs: P.kwargs) -> Number:
        return Number(form(x, *args, **kwargs), x)

    return wrapped


def _not_a_number(x: float) -> str:
    if math.isnan(x):
        return UNKNOWN
    return "infinite" if x > 0 else "-infinite"


@_written
def scientific(x: float, digits: int = 2) -> str:
    """`2.1e-3`: always with an exponent, `digits` significant digits."""
    if not math.isfinite(x):
        return _not_a_number(x)
    mantissa, exponent = f"{x:.{digits - 1}e}".split("e")
    return f"{mantissa}e{int(exponent)}" if int(exponent) else mantissa


@_written
def significant(x: float, digits: int = 2) -> str:
    """`digits` significant digits; an exponent only below 0.01 and from a million on."""
    if not math.isfinite(x):
        return _not_a_number(x)
    if x == 0:
        return "0"
    if not 0.01 <= abs(x) < 1e6:
        return scientific(x, digits)
    if abs(x) >= 10 ** (digits - 1):
        return f"{x:,.0f}"
    return f"{x:#.{digits}g}".rstrip(".")


@_written
def compact(x: float, digits: int = 4) -> str:
    """A setting as one would type it: no trailing zeros."""
    if not math.isfinite(x):
        return _not_a_number(x)
    if x != 0 and abs(x) < 0.01:
        return rate(x)
    return f"{x:.{digits}g}"


@_written
def rate(x: float) -> str:
    """A learning rate: `1.6e-3`, up to three significant digits, no trailing zeros."""
    if not math.isfinite(x):
        return _not_a_number(x)
    mantissa, _, exponent = f"{x:.2e}".partition("e")
    mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}e{int(exponent)}" if int(exponent) else mantissa


@_written
def count(x: float) -> str:
    """A number of updates, runs or tokens: whole, with thousands separators."""
    return f"{x:,.0f}" if math.isfinite(x) else _not_a_number(x)


@_written
def percent(p: float) -> str:
    """A probability or share in per cent; what rounds to nothing says so."""
    if not math.isfinite(p):
        return _not_a_number(p)
    if 0 < p < 0.001:
        return "< 0.1 %"
    if 0.999 < p < 1:
        return "> 99.9 %"
    near_an_end = 0 < p < 0.1 or 0.99 < p < 1
    return f"{100 * p:.1f} %" if near_an_end else f"{100 * p:.0f} %"


@_written
def seconds(x: float) -> str:
    """A duration in the unit that a person would choose."""
    if not math.isfinite(x):
        return _not_a_number(x)
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if x >= 2 * size:
            return f"{x / size:.3g} {unit}"
    return f"{x:.3g} s" if x >= 0.1 else f"{1000 * x:.2g} ms"


@_written
def fixed(x: float) -> str:
    """A setting in per cent: `5 %`, not `5.0 %`."""
    return f"{100 * x:.3g} %"


def interval(value: Estimate, form: Callable[[float], str] | None = None) -> Number:
    """`2.1e-3 [1.7e-3, 2.6e-3]`; all three in the style that suits the interval."""
    return Number(f"{point(value, form)} {bounds(value, form)}", value.estimate, value.low, value.high)


def point(value: Estimate, form: Callable[[float], str] | None = None) -> Number:
    """The estimate alone, with as many digits as its interval deserves."""
    return Number((form or _style(value))(value.estimate), value.estimate, value.low, value.high)


def bounds(value: Estimate, form: Callable[[float], str] | None = None) -> str:
    """The interval alone: `[1.7e-3, 2.6e-3]`."""
    write = form or _style(value)
    return f"[{write(value.low)}, {write(value.high)}]"


def span(ends: tuple[float, float] | None, form: Callable[[float], str] = count) -> str:
    """A half-open interval `(low, high]`, as onsets are given; a dash where there is none."""
    if ends is None:
        return "-"
    low, high = ends
    text = form(high) if low == high else f"({form(low)}, {form(high)}]"
    return Number(text, (low + high) / 2, low, high)


def _style(value: Estimate) -> Callable[[float], str]:
    numbers = (value.estimate, value.low, value.high)
    if not all(math.isfinite(x) for x in numbers):
        return significant
    around_zero = value.low <= 0 <= value.high
    size = max(abs(value.low), abs(value.high)) if around_zero else abs(value.estimate)
    if size != 0 and not 0.01 <= size < 1e6:
        return scientific
    wide = value.low > 0 and value.high > 10 * value.low
    gap = min(value.estimate - value.low, value.high - value.estimate)
    if wide or gap <= 0:
        return significant
    places = max(0, math.ceil(-math.log10(gap)) + (gap * 10 ** math.ceil(-math.log10(gap)) < 3))
    return lambda x: fixed_places(x, min(places, 6))


@_written
def fixed_places(x: float, places: int = 2) -> str:
    """Digits after the point fixed, as for exponents; never `-0.00`."""
    return f"{round(x, places) + 0.0:,.{places}f}" if math.isfinite(x) else _not_a_number(x)


def visible(text: str) -> str:
    """Control characters, terminal escapes and direction marks as text: `\\x1b`. Twice is as good as once."""
    return "".join(_seen(c) for c in text)


def _seen(char: str) -> str:
    if char in _KEPT_INVISIBLE or unicodedata.category(char) not in _HIDDEN:
        return char
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(char) or char.encode("unicode_escape").decode("ascii")


def name(text: str) -> str:
    """A name from a user's configuration: visible, and shortened in the middle when absurdly long."""
    text = visible(text)
    if len(text) <= LONGEST_NAME:
        return text
    half = (LONGEST_NAME - 3) // 2
    return f"{text[:half]}...{text[-half:]}"


def listing(items: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else "none"


def plural(n: int, noun: str) -> str:
    return f"{count(n)} {noun}" if n == 1 else f"{count(n)} {noun}s"
