"""What each sync interval allows: the table behind the choice of S and eta."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from calibrator.advice.types import FrontierRow, Origin, Recommendation, Rule
from reports.cards.advice import RULES
from reports.cards.blocks import Card, Column, Paragraph, Table
from reports.numbers import Number, count, interval, listing, percent, rate, scientific, seconds, significant
from reports.view import StudyView

TITLE = "What each sync interval allows"


@dataclass(frozen=True)
class Shown:
    """A column of the table, left out where no row has a value."""

    column: Column
    value: Callable[[FrontierRow], Number | None]


def frontier(view: StudyView) -> Card:
    rec = view.recommendation
    if rec is None or not rec.frontier:
        return Card(
            "frontier", TITLE, (Paragraph("No interval could be rated, because nothing is recommended."),)
        )
    return Card("frontier", TITLE, (_safe(rec), *_limits(rec), *_price(rec, _cost_origin(view))))


def _cost_origin(view: StudyView) -> Origin:
    return view.cost.origin if view.cost is not None else "measured"


def _safe(rec: Recommendation) -> Table:
    shown = (
        _sync_interval(),
        Shown(Column("eta", "number", origin="derived"), lambda row: rate(row.learning_rate)),
        Shown(
            Column("eta_max [90 %]", "number", origin="derived"),
            lambda row: interval(row.eta_max, scientific),
        ),
        Shown(
            Column("P(collapse by T)", "number", origin="derived"),
            lambda row: interval(row.collapse_probability, percent),
        ),
    )
    rows = tuple((*(each.value(row) or "-" for each in shown), _note(row, rec)) for row in rec.frontier)
    caption = (
        f"eta: largest rate that the rule allows, rounded down to two digits; eta_max: where half of the "
        f"runs are prone to collapse; T = {count(rec.horizon)} updates"
    )
    return Table(caption, (*(each.column for each in shown), Column("note")), rows, _marked(rec))


def _price(rec: Recommendation, cost: Origin) -> tuple[Table, ...]:
    """What a run to T takes and reaches at each S, as far as it was measured."""
    known = (
        _optional("T, updates", "horizon", count, "derived"),
        _optional("L at T", "cumulative_lr", significant, "derived"),
        _optional("time / update", "seconds_per_update", seconds, cost),
        _optional("LR / s", "progress_per_second", significant, "derived"),
        _optional("time to T", "hours", lambda hours: seconds(3600 * hours), "derived"),
        _optional("price to T", "price", significant, "derived"),
    )
    shown = [each for each in known if any(each.value(row) is not None for row in rec.frontier)]
    if not shown:
        return ()
    columns = (_sync_interval(), *shown)
    rows = tuple(tuple(each.value(row) or "-" for each in columns) for row in rec.frontier)
    caption = "What a run takes at that eta, and its progress on the clock L"
    return (Table(caption, tuple(each.column for each in columns), rows, _marked(rec)),)


def _sync_interval() -> Shown:
    return Shown(Column("S", "number", origin="assumed"), lambda row: count(row.sync_interval))


def _marked(rec: Recommendation) -> frozenset[int]:
    return frozenset(i for i, row in enumerate(rec.frontier) if row.sync_interval == rec.sync_interval)


def _optional(title: str, field: str, form: Callable[[float], Number], origin: Origin) -> Shown:
    """A number that older files do not hold, or that is null where it was not measured."""

    def value(row: FrontierRow) -> Number | None:
        found = getattr(row, field)
        return None if found is None else form(found)

    return Shown(Column(title, "number", origin=origin), value)


def _note(row: FrontierRow, rec: Recommendation) -> str:
    if not row.useful:
        return "below the floor"
    if row.sync_interval == rec.sync_interval:
        return "recommended"
    return "synchronous" if row.sync_interval == 1 and rec.schedule == "lockstep" else ""


def _limits(rec: Recommendation) -> tuple[Table, ...]:
    """Largest eta by each rule, where the recommendation holds them, beside the floor under eta."""
    rules = [rule for rule in RULES if any(rule in row.limits for row in rec.frontier)]
    if not rules:
        return ()
    columns = (
        Column("S", "number", origin="assumed"),
        *(Column(rule, "number", origin="derived") for rule in rules),
        Column("floor", "number", origin="derived"),
    )
    rows = tuple(
        (
            count(row.sync_interval),
            *(rate(row.limits[rule]) if rule in row.limits else "-" for rule in rules),
            "-" if row.floor_learning_rate is None else rate(row.floor_learning_rate),
        )
        for row in rec.frontier
    )
    caption = "Largest safe eta by each rule, and the eta below which nothing useful is learned"
    useless: list[str] = [rule for rule in rules if all(_below_floor(row, rule) for row in rec.frontier)]
    if useless:
        caption += f"; at every S what {listing(useless)} allows lies below that floor"
    return (Table(caption, columns, rows, _marked(rec)),)


def _below_floor(row: FrontierRow, rule: Rule) -> bool:
    limit, floor = row.limits.get(rule), row.floor_learning_rate
    return limit is not None and floor is not None and limit < floor
