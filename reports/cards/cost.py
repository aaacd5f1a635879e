"""Card of the cost: seconds of an update, what each interval and placement would take, what the trials took."""

from __future__ import annotations

from collections import Counter

from calibrator.advice.cost import CostModel
from reports.cards.blocks import Block, Card, Column, Paragraph, Table
from reports.numbers import count, name, percent, seconds, significant
from reports.view import StudyView


def phases(cost: CostModel) -> tuple[tuple[str, float, str], ...]:
    """Phase, seconds, and what the seconds are counted per."""
    return (
        ("generate", cost.generate, "per update"),
        ("score", cost.score, "per update"),
        ("learn", cost.learn, "per update"),
        ("synchronize", cost.synchronize, "per synchronization"),
    )


def cost_card(view: StudyView) -> Card:
    spent = _spent_tables(view)
    if view.cost is None:
        text = "No step times were measured, so nothing is said about seconds."
        return Card("cost", "Cost", (Paragraph(text), *spent))
    how = {
        "colocated": "generation and learning take turns on the same devices",
        "separate": "generation and learning run side by side, and the slower one sets the pace",
    }[view.cost.placement]
    at = f"P = {view.cost.prompts_per_update}, G = {view.cost.group_size}"
    text = (
        f"Placement {view.cost.placement}: {how}. Times are {view.cost.origin}, at {at} and "
        f"{significant(view.cost.response_length)} response tokens on average."
    )
    intervals = sorted({r.run.sync_interval for r in view.runs} | {1})
    blocks = (Paragraph(text), _cost_table(view.cost), _pace_table(view.cost, intervals), *spent)
    return Card("cost", "Cost", blocks)


def _cost_table(cost: CostModel) -> Table:
    columns = (Column("phase"), Column("time", "number"), Column("unit"), Column("origin", "origin"))
    rows = tuple((phase, seconds(s), per, cost.origin) for phase, s, per in phases(cost))
    return Table("Time by phase", columns, rows)


def _pace_table(cost: CostModel, intervals: list[int]) -> Table:
    """Colocated: generate + score + learn + sync/S; separate: max(generate + score, learn) + sync/S."""
    together, apart = (cost.model_copy(update={"placement": p}) for p in ("colocated", "separate"))
    columns = (
        Column("S", "number", origin="assumed"),
        Column("colocated", "number", origin="derived"),
        Column("updates per hour", "number", origin="derived"),
        Column("separate", "number", origin="derived"),
        Column("updates per hour", "number", origin="derived"),
        Column("gain", "number", origin="derived"),
    )
    rows = tuple(_pace_row(S, together.seconds_per_update(S), apart.seconds_per_update(S)) for S in intervals)
    caption = (
        "Time per update by sync interval: on the same devices, and side by side on devices of their own"
    )
    return Table(caption, columns, rows)


def _pace_row(S: int, together: float, apart: float) -> tuple[str, ...]:
    per_hour = [count(3600 / t) if t > 0 else "-" for t in (together, apart)]
    gain = f"{significant(together / apart)} x" if apart > 0 else "-"
    return (count(S), seconds(together), per_hour[0], seconds(apart), per_hour[1], gain)


def _spent_tables(view: StudyView) -> list[Block]:
    """What the trials of this study really took, by phase."""
    spent: Counter[str] = Counter()
    for row in view.runs:
        spent.update(row.recorded.seconds if row.recorded else {})
    total = sum(spent.values())
    if total <= 0:
        return []
    columns = (
        Column("phase"),
        Column("all trials", "number", origin="measured"),
        Column("share", "number", origin="derived"),
        Column("per update", "number", origin="derived"),
    )
    updates = sum(row.run.updates for row in view.runs if row.recorded and row.recorded.seconds)
    rows = [
        (name(phase), seconds(s), percent(s / total), seconds(s / updates) if updates else "-")
        for phase, s in spent.most_common()
    ]
    rows.append(("all", seconds(total), percent(1.0), seconds(total / updates) if updates else "-"))
    return [Table("What the trials took", columns, tuple(rows), frozenset({len(rows) - 1}))]
