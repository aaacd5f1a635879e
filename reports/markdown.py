"""The report as GitHub-flavoured Markdown; every text is escaped, figures are linked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import singledispatch

from reports.cards import Block, Card, document_cards
from reports.cards.blocks import (
    Checks,
    Code,
    Fact,
    Facts,
    Figure,
    HeatMap,
    Paragraph,
    RunItem,
    Runs,
    Settings,
    Table,
    origin_note,
)
from reports.numbers import name, visible
from reports.view import StudyView

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~$&!@]|:(?=//)|\.(?=www|\w+\.))")
_LIST_START = re.compile(r"^(\s*)([-+]|\d+[.)])(?=\s)")


def render_markdown(view: StudyView) -> str:
    """The same content as the HTML page; figures are expected in `figures/` beside the file."""
    parts = [f"# {escape(name(view.title))}", f"Study folder: {code(name(view.folder))}"]
    for card in document_cards(view):
        parts += _card(card)
    return "\n\n".join(parts) + "\n"


def _card(card: Card) -> list[str]:
    return [f"## {escape(card.title)}", *(_render(block) for block in card.blocks)]


def escape(text: str) -> str:
    """Text that Markdown shows as it is: no markup, no HTML, no line breaks, no table cells."""
    return _LIST_START.sub(r"\1\\\2", _SPECIAL.sub(r"\\\1", visible(text)))


def code(text: str) -> str:
    """Inline code, fenced by more backticks than the text has in a row."""
    text = visible(text)
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}"


@singledispatch
def _render(block: Block) -> str:
    raise TypeError(f"no Markdown form for {type(block).__name__}")


@_render.register
def _(block: Paragraph) -> str:
    return f"**{escape(block.text)}**" if block.strong else escape(block.text)


@_render.register
def _(block: Settings) -> str:
    rows = [(i.symbol, i.value, i.origin, i.name, i.why) for i in block.items]
    return _table(("", "value", "origin", "what", "why"), rows)


@_render.register
def _(block: Facts) -> str:
    return "\n".join(_fact(fact) for fact in block.items)


def _fact(fact: Fact) -> str:
    note = ", ".join(text for text in (fact.note, fact.origin) if text)
    return f"- {escape(fact.label)}: **{escape(fact.value or '-')}**{f' ({escape(note)})' if note else ''}"


@_render.register
def _(block: Checks) -> str:
    rows = [(c.status, c.code, c.sentence, c.origin) for c in block.items]
    return _table(("status", "check", "what", "numbers"), rows)


@_render.register
def _(block: Figure) -> str:
    return f"![{escape(block.caption)}](figures/{block.name}.svg)"


@_render.register
def _(block: Code) -> str:
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", block.text)), default=0))
    return f"{fence}sh\n{visible(block.text)}\n{fence}"


@_render.register
def _(block: Table) -> str:
    aligned = [c.kind == "number" for c in block.columns]
    body = _table([c.title for c in block.columns], list(block.rows), aligned, block.marked)
    note = f" ({escape(origin_note(block.columns))})" if block.origins() else ""
    return f"{escape(block.caption)}{note}:\n\n{body}"


@_render.register
def _(block: HeatMap) -> str:
    head = (f"{block.row_title} \\ {block.column_title}", *block.columns)
    rows = [
        (f"{title} *" if i in block.extrapolated else title, *(_heat(block, i, j) for j in range(len(line))))
        for i, (title, line) in enumerate(zip(block.rows, block.cells, strict=True))
    ]
    meaning = f"{block.title}: {block.meaning}" if block.meaning else block.title
    return f"{escape(meaning)} ({block.origin}):\n\n{_table(head, rows, [True] * len(head))}"


def _heat(block: HeatMap, row: int, column: int) -> str:
    cell = block.cells[row][column]
    note = block.notes.get((row, column))
    return "-" if cell is None else f"{cell} ({note})" if note else cell


@_render.register
def _(block: Runs) -> str:
    return "\n\n".join(
        f"### {escape(group.title)}: {group.verdict}\n\n{_runs_table(group.items)}" for group in block.groups
    )


def _runs_table(items: Sequence[RunItem]) -> str:
    titles = list(dict.fromkeys(label for item in items for label, _ in (*item.facts, *item.details)))
    rows = []
    for item in items:
        known = dict((*item.facts, *item.details))
        rows.append(
            (str(item.trial), *(known.get(title, "-") for title in titles), " ".join(item.evidence) or "-")
        )
    return _table(("trial", *titles, "evidence"), rows)


def _table(
    head: Sequence[str],
    rows: Sequence[tuple[str, ...]],
    right: list[bool] | None = None,
    marked: frozenset[int] = frozenset(),
) -> str:
    right = right or [False] * len(head)
    lines = [_row(head), _row(["---:" if r else "---" for r in right], plain=True)]
    lines += [
        _row([f"**{escape(c)}**" if i in marked and c else escape(c) for c in row], plain=True)
        for i, row in enumerate(rows)
    ]
    return "\n".join(lines)


def _row(cells: Sequence[str], plain: bool = False) -> str:
    return f"| {' | '.join(c if plain else escape(c) for c in cells)} |"
