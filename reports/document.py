"""The report as JSON: the cards of the other formats, each number with its value and its origin."""

from __future__ import annotations

import math
from functools import singledispatch
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from calibrator.advice.types import Origin
from reports.cards import Block, Card, document_cards, labelled_numbers
from reports.cards.blocks import (
    Checks,
    Code,
    Facts,
    Figure,
    HeatMap,
    Kind,
    Paragraph,
    Runs,
    Settings,
    Status,
    Table,
)
from reports.cards.origins import LabelledNumber
from reports.numbers import Number, visible
from reports.view import StudyView


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NumberRecord(_Record):
    """A number as the report writes it, with what is behind it."""

    text: str
    value: float | None
    """In the unit of the quantity (a share is a share); null where it is unknown or infinite."""
    low: float | None = None
    high: float | None = None
    """Ends of its interval."""


Cell = NumberRecord | str


class ParagraphRecord(_Record):
    block: Literal["paragraph"] = "paragraph"
    text: str
    strong: bool


class SettingRecord(_Record):
    symbol: str
    name: str
    value: Cell
    origin: Origin
    why: str


class SettingsRecord(_Record):
    block: Literal["settings"] = "settings"
    items: list[SettingRecord]


class FactRecord(_Record):
    label: str
    value: Cell
    note: str
    origin: Origin | None


class FactsRecord(_Record):
    block: Literal["facts"] = "facts"
    items: list[FactRecord]


class ColumnRecord(_Record):
    title: str
    kind: Kind
    origin: Origin | None


class TableRecord(_Record):
    block: Literal["table"] = "table"
    caption: str
    columns: list[ColumnRecord]
    rows: list[list[Cell]]
    marked: list[int]
    """Rows that are stressed."""


class CheckRecord(_Record):
    status: Status
    code: str
    sentence: str
    origin: Origin


class ChecksRecord(_Record):
    block: Literal["checks"] = "checks"
    items: list[CheckRecord]


class FigureRecord(_Record):
    """What a figure shows, in words: its numbers are in the tables and under the runs."""

    block: Literal["figure"] = "figure"
    name: str
    caption: str
    description: str


class CodeRecord(_Record):
    block: Literal["code"] = "code"
    text: str


class NoteRecord(_Record):
    row: int
    column: int
    note: str


class HeatMapRecord(_Record):
    block: Literal["heat_map"] = "heat_map"
    title: str
    meaning: str
    origin: Origin
    row_title: str
    column_title: str
    rows: list[str]
    columns: list[str]
    cells: list[list[NumberRecord | None]]
    notes: list[NoteRecord]
    extrapolated_rows: list[int]


class RunRecord(_Record):
    trial: int
    verdict: str
    facts: dict[str, Cell]
    details: dict[str, Cell]
    evidence: list[str]
    cumulative_lr: list[float]
    """L of the thinned curve, LR x updates, measured."""
    reward: list[float]
    """Reward there, measured, as means over bins."""


class GroupRecord(_Record):
    title: str
    verdict: str
    items: list[RunRecord]


class RunsRecord(_Record):
    block: Literal["runs"] = "runs"
    groups: list[GroupRecord]


BlockRecord = Annotated[
    ParagraphRecord
    | SettingsRecord
    | FactsRecord
    | TableRecord
    | ChecksRecord
    | FigureRecord
    | CodeRecord
    | HeatMapRecord
    | RunsRecord,
    Field(discriminator="block"),
]


class CardRecord(_Record):
    slug: str
    title: str
    blocks: list[BlockRecord]


class LabelledRecord(_Record):
    symbol: str
    value: Cell
    unit: str
    origin: Origin
    meaning: str


class Document(_Record):
    """Content of `calibrate report --format json`."""

    schema_version: int = 1
    title: str
    folder: str
    cards: list[CardRecord]
    numbers: list[LabelledRecord]
    """Every number that the answer rests on."""


def document(view: StudyView) -> Document:
    """The same cards as the HTML page, as records."""
    return Document(
        title=visible(view.title),
        folder=visible(view.folder),
        cards=[_card(card, view) for card in document_cards(view)],
        numbers=[_labelled(number) for number in labelled_numbers(view)],
    )


def render_json(view: StudyView) -> str:
    """Two spaces deep, one final newline."""
    return document(view).model_dump_json(indent=2) + "\n"


def _card(card: Card, view: StudyView) -> CardRecord:
    return CardRecord(slug=card.slug, title=card.title, blocks=[_block(block, view) for block in card.blocks])


def _cell(text: str) -> Cell:
    return _number(text) if isinstance(text, Number) else visible(text)


def _number(number: Number) -> NumberRecord:
    value, low, high = (_finite(x) for x in (number.value, number.low, number.high))
    return NumberRecord(text=str(number), value=value, low=low, high=high)


def _finite(x: float | None) -> float | None:
    return x if x is not None and math.isfinite(x) else None


def _labelled(number: LabelledNumber) -> LabelledRecord:
    return LabelledRecord(
        symbol=number.symbol,
        value=_cell(number.value),
        unit=number.unit,
        origin=number.origin,
        meaning=visible(number.meaning),
    )


@singledispatch
def _block(block: Block, view: StudyView) -> BlockRecord:
    raise TypeError(f"no JSON form for {type(block).__name__}")


@_block.register
def _(block: Paragraph, view: StudyView) -> ParagraphRecord:
    return ParagraphRecord(text=visible(block.text), strong=block.strong)


@_block.register
def _(block: Settings, view: StudyView) -> SettingsRecord:
    items = [
        SettingRecord(symbol=i.symbol, name=i.name, value=_cell(i.value), origin=i.origin, why=visible(i.why))
        for i in block.items
    ]
    return SettingsRecord(items=items)


@_block.register
def _(block: Facts, view: StudyView) -> FactsRecord:
    items = [
        FactRecord(label=visible(f.label), value=_cell(f.value), note=visible(f.note), origin=f.origin)
        for f in block.items
    ]
    return FactsRecord(items=items)


@_block.register
def _(block: Table, view: StudyView) -> TableRecord:
    return TableRecord(
        caption=visible(block.caption),
        columns=[ColumnRecord(title=visible(c.title), kind=c.kind, origin=c.origin) for c in block.columns],
        rows=[[_cell(cell) for cell in row] for row in block.rows],
        marked=sorted(block.marked),
    )


@_block.register
def _(block: Checks, view: StudyView) -> ChecksRecord:
    items = [
        CheckRecord(status=c.status, code=visible(c.code), sentence=visible(c.sentence), origin=c.origin)
        for c in block.items
    ]
    return ChecksRecord(items=items)


@_block.register
def _(block: Figure, view: StudyView) -> FigureRecord:
    from reports.figures import describe, keys_of

    text = describe(view, block.name, keys_of(view, block.name))
    return FigureRecord(name=block.name, caption=visible(block.caption), description=visible(text))


@_block.register
def _(block: Code, view: StudyView) -> CodeRecord:
    return CodeRecord(text=visible(block.text))


@_block.register
def _(block: HeatMap, view: StudyView) -> HeatMapRecord:
    return HeatMapRecord(
        title=visible(block.title),
        meaning=block.meaning,
        origin=block.origin,
        row_title=block.row_title,
        column_title=block.column_title,
        rows=list(block.rows),
        columns=list(block.columns),
        cells=[[None if cell is None else _number(cell) for cell in line] for line in block.cells],
        notes=[NoteRecord(row=i, column=j, note=word) for (i, j), word in sorted(block.notes.items())],
        extrapolated_rows=sorted(block.extrapolated),
    )


@_block.register
def _(block: Runs, view: StudyView) -> RunsRecord:
    return RunsRecord(
        groups=[
            GroupRecord(
                title=visible(group.title),
                verdict=group.verdict,
                items=[
                    RunRecord(
                        trial=item.trial,
                        verdict=item.verdict,
                        facts={visible(label): _cell(value) for label, value in item.facts},
                        details={visible(label): _cell(value) for label, value in item.details},
                        evidence=[visible(sentence) for sentence in item.evidence],
                        cumulative_lr=[total for total, _ in item.curve],
                        reward=[value for _, value in item.curve],
                    )
                    for item in group.items
                ],
            )
            for group in block.groups
        ]
    )
