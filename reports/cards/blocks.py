"""A report is a list of cards, a card a list of blocks. Terminal, HTML and Markdown render nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["PASS", "NOTE", "WARN", "FAIL"]
"""NOTE: neither good nor bad, but worth knowing."""
Kind = Literal["text", "number", "verdict", "origin", "symbol"]
FigureName = Literal["phase", "budget", "rewards"]


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
    origin: str
    why: str


@dataclass(frozen=True)
class Settings:
    items: tuple[Setting, ...]


@dataclass(frozen=True)
class Fact:
    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Facts:
    items: tuple[Fact, ...]


@dataclass(frozen=True)
class Column:
    title: str
    kind: Kind = "text"
    wide_only: bool = False
    """Left out where there is little room (a terminal of 80 columns)."""


@dataclass(frozen=True)
class Table:
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    marked: frozenset[int] = frozenset()
    """Rows to stress."""


@dataclass(frozen=True)
class Check:
    status: Status
    code: str
    sentence: str


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


Block = Paragraph | Settings | Facts | Table | Checks | Figure | Code


@dataclass(frozen=True)
class Card:
    slug: str
    title: str
    blocks: tuple[Block, ...]
