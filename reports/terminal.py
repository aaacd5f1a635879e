"""The report on a terminal: what to set first, everything else behind it.

All text enters rich as `Text`, never as markup, with control characters made visible: names come from users.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

from rich import box
from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.padding import Padding
from rich.table import Column as RichColumn
from rich.table import Table as RichTable
from rich.text import Text

from reports.cards import Block, Card, terminal_cards
from reports.cards.blocks import (
    Checks,
    Code,
    Column,
    Facts,
    Figure,
    HeatMap,
    Paragraph,
    Runs,
    Settings,
    Table,
    origin_note,
)
from reports.numbers import visible
from reports.view import StudyView

WIDE = 110
"""Columns from which tables show everything."""

PROSE = 120
"""Longest line of running text, however wide the terminal."""

VERDICT_STYLES = {
    "stable": "green",
    "collapsed": "red",
    "diverged": "magenta",
    "degraded": "yellow",
    "untrained": "bright_black",
    "inconclusive": "bright_black",
    "interrupted": "bright_black",
}
STATUS_STYLES = {"PASS": "green", "NOTE": "cyan", "WARN": "yellow", "FAIL": "bold red"}


def render_terminal(view: StudyView, console: Console) -> None:
    """Print the report. Width and colour are the console's."""
    render_cards(view.title, terminal_cards(view), console)


def render_cards(title: str, cards: Sequence[Card], console: Console) -> None:
    """Print cards below a title."""
    if console.color_system is not None:
        _print_all(title, cards, console)
        return
    with console.capture() as captured:  # without colour: no padding at the ends of lines either
        _print_all(title, cards, console)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    console.out("\n".join(lines), highlight=False)


def _print_all(title: str, cards: Sequence[Card], console: Console) -> None:
    console.print(_text(title, "bold"))
    for card in cards:
        _print_card(card, console)


def _print_card(card: Card, console: Console) -> None:
    console.print()
    console.print(_text(card.title.upper(), "bold cyan"))
    for number, block in enumerate(card.blocks):
        if number and isinstance(block, Table):
            console.print()
        rendered = _render(block, console.width >= WIDE)
        if rendered is not None:
            width = None if isinstance(block, Table) else PROSE
            console.print(Constrain(Padding(rendered, (0, 0, 0, 2)), width))


def _text(text: str, style: str = "") -> Text:
    return Text(visible(text), style=style, overflow="fold")


@singledispatch
def _render(block: Block, wide: bool) -> RenderableType | None:
    raise TypeError(f"no terminal form for {type(block).__name__}")


@_render.register
def _(block: Paragraph, wide: bool) -> RenderableType:
    return _text(block.text, "bold" if block.strong else "")


@_render.register
def _(block: Code, wide: bool) -> RenderableType:
    return Padding(_text(block.text, "bold"), (0, 0, 0, 2))


@_render.register
def _(block: Figure, wide: bool) -> RenderableType | None:
    return None


@_render.register
def _(block: HeatMap, wide: bool) -> RenderableType | None:
    return None


@_render.register
def _(block: Runs, wide: bool) -> RenderableType | None:
    return None


@_render.register
def _(block: Settings, wide: bool) -> RenderableType:
    grid = _grid("left", "left", "left", "left") if wide else _grid("left", "left", "left")
    for item in block.items:
        symbol, value, origin = (
            _text(item.symbol, "bold"),
            _text(item.value, "bold green"),
            _text(item.origin, "dim"),
        )
        why = _text(f"{item.name[:1].upper()}{item.name[1:]}. {item.why}")
        if wide:
            grid.add_row(symbol, value, origin, why)
        else:
            grid.add_row(symbol, value, Text.assemble(why, " ", (f"[{item.origin}]", "dim")))
    return Padding(grid, (1, 0))


@_render.register
def _(block: Facts, wide: bool) -> RenderableType:
    grid = _grid("left", "left")
    for fact in block.items:
        value = _text(fact.value, "bold")
        note = _text(f" ({fact.note})" if fact.note else "")
        origin = _text(f" [{fact.origin}]" if fact.origin else "", "dim")
        grid.add_row(_text(fact.label), Text.assemble(value, note, origin, overflow="fold"))
    return grid


@_render.register
def _(block: Checks, wide: bool) -> RenderableType:
    grid = _grid("left", "left")
    for check in block.items:
        code = _text(f"  [{check.code}]", "dim")
        grid.add_row(
            _text(check.status, STATUS_STYLES[check.status]), Text.assemble(_text(check.sentence), code)
        )
    return grid


@_render.register
def _(block: Table, wide: bool) -> RenderableType:
    shown = [i for i, c in enumerate(block.columns) if wide or not c.wide_only]
    table = RichTable(
        *(_column(block.columns[i]) for i in shown),
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1),
        show_edge=False,
        header_style="bold",
    )
    for number, row in enumerate(block.rows):
        style = "bold" if number in block.marked else ""
        table.add_row(*(_cell(row[i], block.columns[i]) for i in shown), style=style)
    note = origin_note([block.columns[i] for i in shown])
    origin = _text(f" [{note}]" if note else "", "dim")
    return Group(Text.assemble(_text(block.caption, "italic"), origin, overflow="fold"), table)


def _column(column: Column) -> RichColumn:
    justify = "right" if column.kind == "number" else "left"
    return RichColumn(_text(column.title), justify=justify, overflow="fold")  # type: ignore[arg-type]


def _cell(value: str, column: Column) -> Text:
    return _text(value, VERDICT_STYLES.get(value, "") if column.kind == "verdict" else "")


def _grid(*justify: str) -> RichTable:
    grid = RichTable.grid(padding=(0, 2, 0, 0))
    for side in justify:
        grid.add_column(justify=side, overflow="fold")  # type: ignore[arg-type]
    return grid
