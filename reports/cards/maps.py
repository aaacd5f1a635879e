"""Heat maps over (G, epsilon): what the recorded ratios say about pairs that were not trained with."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from calibrator.advice.types import Origin, Recommendation, SuggestionRow
from reports.cards.blocks import Block, HeatMap
from reports.numbers import Number, compact, count, name, percent, significant
from reports.view import StudyView

Form = Callable[[float], Number]


@dataclass(frozen=True)
class Quantity:
    """One map."""

    field: str
    title: str
    meaning: str
    form: Form
    origin: Origin = "derived"


def _three(x: float) -> Number:
    return significant(x, 3)


QUANTITIES = (
    Quantity(
        "cap_activation", "Cap active", "share of groups (gmc) or trajectories on which the cap acts", percent
    ),
    Quantity("lost_mass", "Lost ratio mass", "E[r - omega], ratio mass that the cap takes away", significant),
    Quantity("bound", "Bound on the lost mass", "from the measured second moment of the ratios", significant),
    Quantity("second_moment", "Second moment", "E[omega^2], the variance that the weights add", _three),
    Quantity("ess", "Effective sample size", "of the weights, as a share of the batch", percent),
    Quantity("signal", "Groups with signal", "share of groups with both good and bad completions", percent),
    Quantity(
        "signal_per_rollout", "Signal per rollout", "share of rollouts that count, at equal cost", percent
    ),
)


def map_blocks(view: StudyView) -> list[Block]:
    """A heat map for each quantity, by estimator; pairs that were not rated stay empty."""
    rec = view.recommendation
    if rec is None or rec.suggested is None:
        return []
    by_estimator: dict[str, list[SuggestionRow]] = {}
    for row in rec.suggested.table:
        by_estimator.setdefault(row.estimator, []).append(row)
    first = sorted(by_estimator, key=lambda each: each != rec.estimator)
    return [
        block
        for quantity in QUANTITIES
        for estimator in first
        if (block := _map(rec, by_estimator, estimator, quantity)) is not None
    ]


def _map(
    rec: Recommendation, by_estimator: dict[str, list[SuggestionRow]], estimator: str, quantity: Quantity
) -> HeatMap | None:
    """Shades are those of all estimators together, so that two maps side by side can be compared."""
    rows = by_estimator[estimator]
    sizes = sorted({row.group_size for row in rows})
    thresholds = sorted({row.epsilon for row in rows})
    values = _values(rows, quantity)
    every = [x for each in by_estimator.values() for x in _values(each, quantity).values()]
    if not values:
        return None
    grid = [[values.get((G, eps)) for eps in thresholds] for G in sizes]
    columns: tuple[str, ...] = tuple(compact(eps) for eps in thresholds)
    notes = _notes(rec, sizes, thresholds)
    if all(len(set(line)) == 1 for line in grid):  # epsilon changes nothing
        grid, columns = [line[:1] for line in grid], ("any",)
        notes = {(i, 0): word for (i, _), word in notes.items()}
    low, high = min(every), max(every)
    return HeatMap(
        title=f"{quantity.title}, {name(estimator)}",
        meaning=quantity.meaning,
        origin=quantity.origin,
        row_title="G",
        column_title="epsilon",
        rows=tuple(count(G) for G in sizes),
        columns=columns,
        cells=tuple(tuple(None if x is None else quantity.form(x) for x in line) for line in grid),
        shades=tuple(tuple(_shade(x, low, high) for x in line) for line in grid),
        notes=notes if estimator == rec.estimator else {},
        extrapolated=frozenset(i for i, G in enumerate(sizes) if _all_extrapolated(rows, G)),
    )


def _values(rows: list[SuggestionRow], quantity: Quantity) -> dict[tuple[int, float], float]:
    return {
        (row.group_size, row.epsilon): float(value)
        for row in rows
        if (value := getattr(row, quantity.field)) is not None and math.isfinite(value)
    }


def _all_extrapolated(rows: list[SuggestionRow], G: int) -> bool:
    return all(row.extrapolated for row in rows if row.group_size == G)


def _notes(rec: Recommendation, sizes: list[int], thresholds: list[float]) -> dict[tuple[int, int], str]:
    suggested = rec.suggested
    pairs = {"swept": (rec.group_size, rec.epsilon)}
    if suggested is not None and (suggested.group_size, suggested.epsilon) != pairs["swept"]:
        pairs["suggested"] = (suggested.group_size, suggested.epsilon)
    return {
        (sizes.index(G), thresholds.index(eps)): word
        for word, (G, eps) in pairs.items()
        if G in sizes and eps in thresholds
    }


def _shade(x: float | None, low: float, high: float) -> float:
    if x is None or high <= low:
        return 0.0
    return round((x - low) / (high - low), 3)
