"""A report is a list of cards, a card a list of blocks. Terminal, HTML and Markdown render nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from calibrator.advice.types import Origin
from reports.numbers import Number

Status = Literal["PASS", "NOTE", "WARN", "FAIL"]
"""NOTE: neither good nor bad, but worth knowing."""
Kind = Literal["text", "number", "verdict", "origin", "symbol"]
FigureName = Literal["phase", "budget", "rewards", "sawtooth", "bias"]


@dataclass(frozen=True)
class Paragraph:
    text: str
    strong: bool = False


@dataclass(frozen=True)
class Setting:
    """One number to set, with where it comes from."""

    symbol: str
    name: str
    value: str
    origin: Origin
    why: str


@dataclass(frozen=True)
class Settings:
    items: tuple[Setting, ...]


@dataclass(frozen=True)
class Fact:
    label: str
    value: str
    note: str = ""
    origin: Origin | None = None
    """Of the numbers in it; None where there is none."""


@dataclass(frozen=True)
class Facts:
    items: tuple[Fact, ...]


@dataclass(frozen=True)
class Column:
    title: str
    kind: Kind = "text"
    wide_only: bool = False
    """Left out where there is little room (a terminal of 80 columns)."""
    origin: Origin | None = None
    """Of the numbers below it; None where there is none, or where each row says its own."""


@dataclass(frozen=True)
class Table:
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    marked: frozenset[int] = frozenset()
    """Rows to stress."""

    def origins(self) -> set[Origin]:
        """Origins of the numbers in its columns."""
        return {column.origin for column in self.columns if column.origin is not None}


def origin_note(columns: Sequence[Column]) -> str:
    """`derived`, or which columns are what where they differ: `S assumed; others derived`. Empty without numbers."""
    found: dict[Origin, list[str]] = {}
    for column in columns:
        if column.origin is not None:
            found.setdefault(column.origin, []).append(column.title)
    if len(found) < 2:
        return next(iter(found), "")
    most = max(found, key=lambda origin: len(found[origin]))
    named = [f"{', '.join(titles)} {origin}" for origin, titles in found.items() if origin != most]
    return "; ".join([*named, f"others {most}"])


@dataclass(frozen=True)
class Check:
    status: Status
    code: str
    sentence: str
    origin: Origin = "derived"
    """Of the numbers in the sentence."""


@dataclass(frozen=True)
class Checks:
    items: tuple[Check, ...]


@dataclass(frozen=True)
class Figure:
    """A place for a figure that is drawn from the same view."""

    name: FigureName
    caption: str


@dataclass(frozen=True)
class Code:
    text: str


@dataclass(frozen=True)
class HeatMap:
    """A number for each pair (G, epsilon); None where the pair was not rated."""

    title: str
    meaning: str
    origin: Origin
    row_title: str
    column_title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[Number | None, ...], ...]
    shades: tuple[tuple[float, ...], ...]
    """How deep each cell is coloured, 0 to 1."""
    notes: dict[tuple[int, int], str] = field(default_factory=dict)
    """What is special about a cell, by (row, column): `swept`, `suggested`."""
    extrapolated: frozenset[int] = frozenset()
    """Rows that reach beyond what was recorded."""


@dataclass(frozen=True)
class RunItem:
    """One run, as a line that can be opened."""

    trial: int
    verdict: str
    facts: tuple[tuple[str, str], ...]
    """What identifies it, in a few words each: (label, value)."""
    details: tuple[tuple[str, str], ...]
    evidence: tuple[str, ...]
    curve: tuple[tuple[float, float], ...] = ()
    """(L, reward), thinned; empty when there is no log."""
    onset: tuple[float, float] | None = None
    """L at the last good and at the first bad version."""

    @property
    def curve_text(self) -> str:
        """Text alternative of the curve."""
        if not self.curve:
            return "no curve"
        (_, first), (total, last) = self.curve[0], self.curve[-1]
        fell = f", fell between L = {self.onset[0]:.3g} and {self.onset[1]:.3g}" if self.onset else ""
        return f"reward from {first:.3g} to {last:.3g} over L = {total:.3g}{fell}"


@dataclass(frozen=True)
class RunGroup:
    title: str
    verdict: str
    items: tuple[RunItem, ...]


@dataclass(frozen=True)
class Runs:
    """Every run, in groups. Numbers of runs are measured; onsets are derived by the judge."""

    groups: tuple[RunGroup, ...]

    @property
    def count(self) -> int:
        return sum(len(group.items) for group in self.groups)


Block = Paragraph | Settings | Facts | Table | Checks | Figure | Code | HeatMap | Runs


@dataclass(frozen=True)
class Card:
    slug: str
    title: str
    blocks: tuple[Block, ...]
