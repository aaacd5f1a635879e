"""Cards of `calibrate compare`: what to set, what differs in the laws, and what differs between the studies."""

from __future__ import annotations

import json
from collections.abc import Sequence

from calibrator.advice.compare import Comparison, Contrast, Difference, Side
from reports.cards.blocks import Block, Card, Column, Paragraph, Table
from reports.numbers import (
    bounds,
    compact,
    count,
    interval,
    listing,
    name,
    percent,
    plural,
    point,
    rate,
    scientific,
)

_SIDES = (Column(""), Column("first"), Column("second"))
_DIFFERENCES = (Column("key"), Column("first"), Column("second"))
_CONTRASTS = (
    Column("quantity"),
    Column("first", "number"),
    Column("90 %", "number", wide_only=True),
    Column("second", "number"),
    Column("90 %", "number", wide_only=True),
    Column("ratio", "number"),
    Column("P(first >)", "number"),
    Column("differs"),
)
NOT_GIVEN = "-"


def comparison_cards(found: Comparison) -> tuple[Card, ...]:
    """What to set, the laws, and the differences of the configurations."""
    return (
        Card("set", "What to set", (_sides(found), *_refusals(found))),
        Card("laws", "Laws", tuple(_laws(found))),
        Card("settings", "Settings that differ", (_differences("Trials, and the question", found.settings),)),
        Card("made", "Made with", (_differences("Versions, hardware and code", found.made_with),)),
    )


def _sides(found: Comparison) -> Table:
    columns = [_column(found.first), _column(found.second)]
    rows = tuple((label, columns[0][label], columns[1][label]) for label in columns[0])
    return Table("Recommendations [derived] and the runs behind them [measured]", _SIDES, rows)


def _refusals(found: Comparison) -> list[Block]:
    return [
        Paragraph(f"{name(side.name)} recommends nothing. {side.refusal or ''}")
        for side in (found.first, found.second)
        if side.recommendation is None
    ]


def _column(side: Side) -> dict[str, str]:
    rec = side.recommendation
    numbers = dict.fromkeys(("S", "eta", "G", "epsilon", "for", "P(collapse by T)"), NOT_GIVEN)
    if rec is not None:
        numbers = {
            "S": count(rec.sync_interval),
            "eta": rate(rec.learning_rate),
            "G": NOT_GIVEN if rec.group_size is None else count(rec.group_size),
            "epsilon": NOT_GIVEN if rec.epsilon is None else compact(rec.epsilon),
            "for": f"T = {plural(rec.horizon, 'update')}, {rec.schedule}",
            "P(collapse by T)": interval(rec.collapse_probability, percent),
        }
    verdicts = [f"{number} {verdict}" for verdict, number in side.verdicts.items()]
    return {
        "study": name(side.name),
        **numbers,
        "estimator": name(side.estimator),
        "runs by verdict": listing(verdicts),
        "in the fit": f"{plural(side.runs_in_fit, 'run')}, {plural(side.events, 'event')}",
        "boundary": side.boundary or "not identified",
    }


def _laws(found: Comparison) -> list[Block]:
    if not found.contrasts:
        missing = [side.name for side in (found.first, found.second) if side.boundary is None]
        return [Paragraph(f"Nothing to compare: {listing(missing)} identifies no boundary.")]
    caption = (
        "Medians and 90 % intervals [derived]; eta_max: half of the runs are prone; C of the ceiling boundary and B in "
        "LR x updates; ratio: second over first; P(first >): that it is larger in the first; differs: the interval of "
        "the ratio leaves out 1"
    )
    marked = frozenset(i for i, row in enumerate(found.contrasts) if row.differs)
    table = Table(caption, _CONTRASTS, tuple(_contrast(row) for row in found.contrasts), marked)
    return [Paragraph(verdict(found.contrasts), strong=True), table]


def verdict(rows: Sequence[Contrast]) -> str:
    """One sentence: what differs by more than its interval."""
    told = [f"{_label(row)} ({_larger(row)})" for row in rows if row.differs]
    if told:
        return f"By more than their intervals differ: {listing(told)}."
    common = "" if any(row.quantity == "eta_max" for row in rows) else " They have no tested S in common."
    return f"No quantity of the laws differs by more than its interval.{common}"


def _larger(row: Contrast) -> str:
    where, chance = ("first", row.first_larger) if row.ratio.high < 1 else ("second", 1 - row.first_larger)
    return f"larger in the {where}, probability {percent(chance)}"


def _label(row: Contrast) -> str:
    return row.quantity if row.sync_interval is None else f"{row.quantity}(S = {count(row.sync_interval)})"


def _contrast(row: Contrast) -> tuple[str, ...]:
    return (
        _label(row),
        point(row.first, scientific),
        bounds(row.first, scientific),
        point(row.second, scientific),
        bounds(row.second, scientific),
        interval(row.ratio),
        percent(row.first_larger),
        "yes" if row.differs else "no",
    )


def _differences(caption: str, found: Sequence[Difference]) -> Block:
    if not found:
        return Paragraph("None.")
    return Table(
        caption,
        _DIFFERENCES,
        tuple((name(row.key), _value(row.first), _value(row.second)) for row in found),
    )


def _value(value: object) -> str:
    if value is None:
        return NOT_GIVEN
    return name(value) if isinstance(value, str) else name(json.dumps(value))
