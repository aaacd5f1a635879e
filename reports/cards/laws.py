"""Cards of the fitted laws: boundary, budget, and the naive fit beside the censored one."""

from __future__ import annotations

from collections.abc import Callable

from calibrator.laws.types import BoundaryFit, BoundaryModel, BoundaryName, Estimate, StratumFit
from reports.cards.blocks import Block, Card, Column, Figure, Paragraph, Table
from reports.numbers import (
    LR_UPDATES,
    bounds,
    count,
    fixed_places,
    interval,
    percent,
    plural,
    point,
    scientific,
    significant,
)
from reports.view import StudyView, stratum_key

FORMULAS: dict[BoundaryName, str] = {
    "power": "eta_max = C S^-alpha",
    "ceiling": "1/eta_max = 1/eta_0 + (S - 1)/C",
    "constant": "eta_max = eta_0",
}
_LAW_COLUMNS = (
    Column("boundary"),
    Column("parameter", "symbol"),
    Column("estimate", "number", origin="derived"),
    Column("90 % interval", "number", origin="derived"),
    Column("weight", "number", origin="derived"),
    Column("unit", wide_only=True),
)
_BUDGET_COLUMNS = (
    Column("parameter", "symbol"),
    Column("estimate", "number", origin="derived"),
    Column("90 % interval", "number", origin="derived"),
    Column("unit", wide_only=True),
    Column("meaning"),
)


def _each_stratum(view: StudyView) -> list[tuple[StratumFit, str]]:
    return [(s, view.label(stratum_key(s.estimator, s.strata))) for s in view.fit.strata]


def law_tables(view: StudyView) -> list[Block]:
    """Per estimator: the boundaries with their weights, then the budget."""
    blocks: list[Block] = []
    for stratum, label in _each_stratum(view):
        blocks += [boundary_block(stratum, label), budget_block(stratum, label)]
    return blocks or [Paragraph("No law was fitted.")]


def boundary_block(stratum: StratumFit, label: str) -> Block:
    if stratum.boundary is None:
        return Paragraph(f"{label}: no boundary could be fitted ({tested(stratum)}).")
    chosen = stratum.boundary.chosen
    caption = f"{label}: stability boundary from {tested(stratum)}; chosen: {chosen}, {FORMULAS[chosen]}"
    rows, marked = _boundary_rows(stratum.boundary)
    return Table(caption, _LAW_COLUMNS, tuple(rows), frozenset(marked))


def tested(stratum: StratumFit) -> str:
    """`12 runs: 5 events, 6 survivors, 1 excluded`."""
    parts = [plural(stratum.events, "event"), plural(stratum.survivors, "survivor")]
    parts += [f"{count(stratum.excluded)} excluded"] if stratum.excluded else []
    return f"{plural(stratum.runs, 'run')}: {', '.join(parts)}"


def _boundary_rows(fit: BoundaryFit) -> tuple[list[tuple[str, ...]], list[int]]:
    rows: list[tuple[str, ...]] = []
    marked: list[int] = []
    for boundary, model in fit.models.items():
        title = f"{boundary} (chosen)" if boundary == fit.chosen else boundary
        head: tuple[str, str] = (title, percent(model.weight))
        for symbol, unit, value in parameters(boundary, model):
            if boundary == fit.chosen:
                marked.append(len(rows))
            form = form_of(symbol)
            rows.append((head[0], symbol, point(value, form), bounds(value, form), head[1], unit))
            head = ("", "")
    return rows, marked


def parameters(boundary: BoundaryName, model: BoundaryModel) -> list[tuple[str, str, Estimate]]:
    """Symbol, unit and estimate of what the boundary has."""
    unit = LR_UPDATES if boundary == "ceiling" else "LR at S = 1"
    every = (
        ("C", unit, model.C),
        ("alpha", "-", model.alpha),
        ("eta_0", "LR", model.eta_0),
        ("sigma_C", "log eta", model.sigma),
    )
    return [(symbol, unit, value) for symbol, unit, value in every if value is not None]


def form_of(symbol: str) -> Callable[[float], str] | None:
    """Rates always have an exponent, exponents of laws two places; others take what suits their interval."""
    if symbol in {"alpha", "beta", "gamma"}:
        return fixed_places
    return scientific if symbol == "eta_0" else None


def budget_block(stratum: StratumFit, label: str) -> Block:
    if stratum.budget is None:
        return Paragraph(f"{label}: no collapse budget could be fitted ({tested(stratum)}).")
    rows = [
        (symbol, point(value, form_of(symbol)), bounds(value, form_of(symbol)), unit, meaning)
        for symbol, value, unit, meaning in budget_parameters(stratum)
    ]
    return Table(
        f"{label}: collapse budget, t = B / eta at onset", _BUDGET_COLUMNS, tuple(rows), frozenset({0})
    )


def budget_parameters(stratum: StratumFit) -> list[tuple[str, Estimate, str, str]]:
    budget = stratum.budget
    if budget is None:
        return []
    every = (
        ("B", budget.B, LR_UPDATES, "L at which a collapsing run collapses"),
        ("B", budget.B_without_ceiling_deaths, LR_UPDATES, "the same without deaths near eta_0"),
        ("beta", budget.beta, "-", "1: onset in updates falls as 1 / eta"),
        ("gamma", budget.gamma, "-", "0: onset does not depend on S"),
        ("sigma_B", budget.sigma, "log L", "spread between runs"),
    )
    return [(symbol, value, unit, meaning) for symbol, value, unit, meaning in every if value is not None]


def phase_card(view: StudyView) -> Card:
    shown = ["Every run by verdict; runs with the same numbers stand side by side."]
    shown += ["The line is the fitted boundary eta_max(S), with its 90 % band."] if view.bands else []
    shown += ["The star is the recommended point."] if view.recommendation else []
    caption = " ".join(shown)
    blocks: list[Block] = [Figure("phase", caption)]
    blocks += [boundary_block(s, label) for s, label in _each_stratum(view)]
    return Card("phase", "Stability boundary", tuple(blocks if view.runs else [Paragraph(_NO_RUNS)]))


_NO_RUNS = "There are no runs to draw."


def budget_card(view: StudyView) -> Card:
    caption = (
        "When runs died: intervals from the last good to the first bad version, against eta; runs of the "
        "same eta stand side by side. The line is t = B / eta with its 90 % band; the dashed one has the slope that "
        "is fitted, -beta."
    )
    blocks: list[Block] = (
        [Figure("budget", caption)] if any(r.verdict.onset_updates for r in view.runs) else []
    )
    if not blocks:
        blocks.append(Paragraph("No run died, so there is no collapse time to draw and B is unknown."))
    blocks += [budget_block(s, label) for s, label in _each_stratum(view)]
    return Card("budget", "Collapse budget", tuple(blocks))


def rewards_card(view: StudyView) -> Card:
    title = "Reward against cumulative learning rate"
    if not any(r.curve is not None for r in view.runs):
        return Card("rewards", title, (Paragraph("No reward curve can be drawn: no log could be read."),))
    caption = "One line a run, as means over bins; where curves fall at the same L, the budget law holds."
    return Card("rewards", title, (Figure("rewards", caption),))


def naive_card(view: StudyView) -> Card:
    title = "Naive fit beside the censored one"
    tables = [_naive_table(s, label) for s, label in _each_stratum(view) if s.naive and s.eta_max]
    if not tables:
        return Card(
            "naive", title, (Paragraph("No naive fit was made: it needs both deaths and survivors."),)
        )
    text = (
        "A penalised logistic regression of 'collapsed' on log S and log eta counts every survivor as safe, "
        "also those that stopped before their budget was spent. The censored fit does not."
    )
    return Card("naive", title, (Paragraph(text), *tables))


def _naive_table(stratum: StratumFit, label: str) -> Table:
    columns = (
        Column("S", "number", origin="assumed"),
        Column("censored eta_max [90 %]", "number", origin="derived"),
        Column("naive eta_max", "number", origin="derived"),
        Column("naive / censored", "number", origin="derived"),
    )
    rows = []
    for row in stratum.eta_max:
        naive = naive_eta_max(stratum, row.effective_interval or row.sync_interval)
        ratio = f"{significant(naive / row.eta_max.estimate)} x"
        rows.append((f"{row.sync_interval:,}", interval(row.eta_max, scientific), scientific(naive), ratio))
    return Table(f"{label}: {_naive_law(stratum)}", columns, tuple(rows))


def _naive_law(stratum: StratumFit) -> str:
    naive = stratum.naive
    if naive is None or naive.C is None:
        return "no naive law"
    alpha = naive.alpha.estimate if naive.alpha else 1.0
    return f"naive law eta_max = {significant(naive.C.estimate)} S^-{significant(alpha)}"


def naive_eta_max(stratum: StratumFit, effective_interval: int) -> float:
    """Where the naive power law puts the boundary; NaN without one."""
    naive = stratum.naive
    if naive is None or naive.C is None:
        return float("nan")
    alpha = naive.alpha.estimate if naive.alpha else 1.0
    return float(naive.C.estimate * effective_interval**-alpha)
