"""Card of the staleness bias: how far the estimator's gradient is from that of the present policy, by lag."""

from __future__ import annotations

from reports.cards.blocks import Block, Card, Column, Figure, Paragraph, Table
from reports.numbers import count, percent, rate, significant
from reports.staleness import Folded, Setting, folded, longest_record
from reports.view import StudyView

TITLE = "Staleness bias"
NEVER = (
    "No trial recorded the staleness probe, so the bias is not shown. probe.staleness_every in study.toml turns it "
    "on; a probe costs a little over two updates."
)
COLUMNS = (
    Column("S", "number", origin="assumed"),
    Column("eta", "number", origin="assumed"),
    Column("rows", "number", origin="measured"),
    Column("bias at lag 0", "number", origin="measured"),
    Column("at the largest lag", "number", origin="measured"),
    Column("of the gradient", "number", origin="derived"),
    Column("largest lag", "number", origin="measured"),
)


def staleness_card(view: StudyView) -> Card:
    keys = [key for key in view.keys() if folded(view, key)]  # noqa: SIM118
    if not keys:
        return Card("staleness", TITLE, (Paragraph(NEVER),))
    blocks: list[Block] = []
    if any(longest_record(view, key) for key in keys):
        caption = (
            "One run: norm of the bias as a share of the gradient's, probe by probe (measured). Vertical lines are "
            "synchronizations, at which it returns to zero. Single probes are noisy; where noise makes the square "
            "negative, the point lies below zero."
        )
        blocks.append(Figure("sawtooth", caption))
    caption = (
        "All runs, folded over their cycles: root of the mean squared bias against the lag, with one standard error "
        "(measured)."
    )
    blocks.append(Figure("bias", caption))
    blocks += [_table(view.label(key), folded(view, key)) for key in keys]
    return Card("staleness", TITLE, tuple(blocks))


def _table(label: str, curves: dict[Setting, Folded]) -> Table:
    rows = tuple(
        (
            count(S),
            rate(eta),
            count(curve.rows),
            significant(curve.bias[0]) if curve.lag[0] == 0 else "-",
            significant(curve.bias[-1]) if curve.lag[-1] > 0 else "-",
            percent(curve.bias[-1] / curve.full) if curve.lag[-1] > 0 and curve.full > 0 else "-",
            count(curve.lag[-1]),
        )
        for (S, eta), curve in curves.items()
    )
    return Table(f"{label}: norm of the bias, and its share of the full gradient's norm", COLUMNS, rows)
