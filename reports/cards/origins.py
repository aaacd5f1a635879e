"""Every number that the answer rests on, with its origin: measured, derived or assumed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from calibrator.advice.types import Origin, Recommendation
from reports.cards.advice import crossover_text, held_out_text, settings
from reports.cards.blocks import Card, Column, Paragraph, Table
from reports.cards.cost import phases
from reports.cards.laws import budget_parameters, form_of, parameters
from reports.numbers import LR_UPDATES, count, fixed, interval, percent, rate, seconds, significant
from reports.view import StudyView, stratum_key


@dataclass(frozen=True)
class LabelledNumber:
    symbol: str
    value: str
    unit: str
    origin: Origin
    meaning: str


def labelled_numbers(view: StudyView) -> list[LabelledNumber]:
    """The same list in every format."""
    numbers = list(_advice(view.recommendation)) if view.recommendation else []
    return [*numbers, *_laws(view), *_cost(view)]


def origins_card(view: StudyView) -> Card:
    title = "Numbers and their origin"
    numbers = labelled_numbers(view)
    if not numbers:
        return Card("origins", title, (Paragraph("The study yields no numbers."),))
    columns = (
        Column("symbol", "symbol"),
        Column("value", "number"),
        Column("unit"),
        Column("origin", "origin"),
        Column("meaning"),
    )
    rows = tuple((n.symbol, n.value, n.unit, n.origin, n.meaning) for n in numbers)
    return Card("origins", title, (Table("With 90 % intervals where they were fitted", columns, rows),))


def _advice(rec: Recommendation) -> Iterator[LabelledNumber]:
    units = {"S": "updates", "eta": "LR", "G": "completions", "epsilon": "-"}
    origins = ("sync_interval", "learning_rate", "group_size", "epsilon")
    for item, key in zip(settings(rec), origins, strict=True):
        origin = rec.origin.get(key, "assumed")
        yield LabelledNumber(
            item.symbol, item.value, units[item.symbol], origin, f"recommended {item.name.split(',')[0]}"
        )
    yield LabelledNumber("T", count(rec.horizon), "updates", "assumed", "horizon, set by the user")
    yield LabelledNumber("risk", fixed(rec.risk), "-", "assumed", "accepted probability, set by the user")
    collapse = interval(rec.collapse_probability, percent)
    yield LabelledNumber("P", collapse, "-", "derived", "probability of collapse by T")
    yield LabelledNumber("eta T / L", significant(rec.extrapolation), "-", "derived", "extrapolation factor")
    if rec.floor_learning_rate is not None:
        yield LabelledNumber(
            "floor",
            rate(rec.floor_learning_rate),
            "LR",
            "derived",
            "eta below which nothing useful is learned",
        )
    if rec.crossover_interval is not None:
        value = crossover_text(rec, rec.crossover_interval)
        yield LabelledNumber("S*", value, "updates", "derived", "interval at which eta_max = B / T")
    confirmation = rec.confirmation
    if confirmation is not None:
        before = significant(confirmation.held_out_before, 3)
        yield LabelledNumber(
            "R before", before, "reward", "measured", "held-out reward before the confirmation"
        )
        for trial, after in zip(confirmation.trials, confirmation.held_out_after, strict=False):
            yield LabelledNumber(
                "R after", held_out_text(after), "reward", "measured", f"held-out reward, trial {trial}"
            )


def _laws(view: StudyView) -> Iterator[LabelledNumber]:
    for stratum in view.fit.strata:
        label = view.label(stratum_key(stratum.estimator, stratum.strata))
        if stratum.boundary is not None:
            chosen = stratum.boundary.chosen
            for symbol, unit, value in parameters(chosen, stratum.boundary.models[chosen]):
                yield LabelledNumber(
                    symbol, interval(value, form_of(symbol)), unit, "derived", f"{label}: boundary '{chosen}'"
                )
        for symbol, value, unit, meaning in budget_parameters(stratum):
            yield LabelledNumber(
                symbol, interval(value, form_of(symbol)), unit, "derived", f"{label}: {meaning}"
            )
        longest = significant(stratum.longest_cumulative_lr)
        yield LabelledNumber(
            "L", longest, LR_UPDATES, "measured", f"{label}: longest observed cumulative rate"
        )


def _cost(view: StudyView) -> Iterator[LabelledNumber]:
    if view.cost is None:
        return
    for phase, value, per in phases(view.cost):
        yield LabelledNumber("t", seconds(value), per, view.cost.origin, f"time to {phase}")
