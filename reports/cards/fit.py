"""Cards of a fit alone, for `calibrate fit`: what a colleague would check before believing the numbers."""

from __future__ import annotations

from calibrator.advice.types import Recommendation
from calibrator.laws.types import (
    BoundaryFit,
    BoundaryModel,
    Estimate,
    EtaMax,
    FitResult,
    Limit,
    Outlook,
    StratumFit,
)
from reports.cards.advice import how_sure, what_to_set
from reports.cards.blocks import Block, Card, Check, Checks, Column, Paragraph, Table
from reports.cards.frontier import frontier
from reports.cards.health import OUTCOMES, finding_checks, severity
from reports.cards.laws import FORMULAS, budget_block, form_of, naive_card, parameters, tested
from reports.numbers import (
    Number,
    bounds,
    count,
    fixed,
    interval,
    percent,
    point,
    rate,
    scientific,
    significant,
)
from reports.view import StudyView, stratum_key

MOST_PAIRS = 20
"""Rows of tested pairs that are printed; the JSON holds all."""
_FIELDS = {"sigma_C": "sigma"}
_BOUNDARY_COLUMNS = (
    Column("boundary"),
    Column("weight", "number", origin="derived"),
    Column("parameter", "symbol"),
    Column("estimate", "number", origin="derived"),
    Column("90 % interval", "number", origin="derived"),
    Column("ML", "number", origin="derived"),
)
_PAIR_COLUMNS = (
    Column("S", "number", origin="assumed"),
    Column("eta", "number", origin="assumed"),
    Column("collapsed", "number", origin="derived"),
    Column("by L", "number", origin="measured"),
    Column("P(collapse by L)", "number", origin="derived"),
)


def fit_cards(fit: FitResult) -> tuple[Card, ...]:
    """A card for the laws of each stratum, one for its outlook, and one for all findings."""
    view = StudyView(title="", folder="", runs=(), fit=fit)
    cards: list[Card] = []
    for number, stratum in enumerate(fit.strata):
        label = view.label(stratum_key(stratum.estimator, stratum.strata))
        cards.append(Card(f"laws-{number}", label, tuple(_laws(stratum, label))))
        if ahead := _outlook(stratum):
            cards.append(Card(f"outlook-{number}", f"{label}: learning rates", tuple(ahead)))
    shown = {test.sentence for stratum in fit.strata for test in stratum.tests}
    checks = [check for check in sorted(finding_checks(view), key=severity) if check.sentence not in shown]
    said: Block = Checks(tuple(checks)) if checks else Paragraph("None.")
    naive = [naive_card(view)] if any(stratum.naive and stratum.eta_max for stratum in fit.strata) else []
    return (*cards, *naive, Card("findings", "Findings", (said,)))


def advice_cards(fit: FitResult, advice: Recommendation) -> tuple[Card, ...]:
    """A recommendation from runs that no study made: what to set, how sure, what each S allows, findings."""
    view = StudyView(title="", folder="", runs=(), fit=fit, recommendation=advice)
    checks = tuple(sorted(finding_checks(view), key=severity))
    return (
        what_to_set(view),
        how_sure(view),
        frontier(view),
        Card("findings", "Findings", (Checks(checks),)),
    )


def _laws(stratum: StratumFit, label: str) -> list[Block]:
    longest = significant(stratum.longest_cumulative_lr)
    blocks: list[Block] = [Paragraph(f"{tested(stratum)}; longest observed L {longest} LR x updates.")]
    if stratum.strata:
        settings = ", ".join(f"{key} = {value}" for key, value in stratum.strata.items())
        blocks.append(Paragraph(f"Setting: {settings}."))
    if stratum.boundary is None:
        blocks += [
            Paragraph("No boundary can be given; the findings say why and what to run next.", strong=True)
        ]
        blocks += [_pairs(stratum)] if stratum.tested else []
    else:
        blocks.append(_boundaries(stratum.boundary))
    blocks += [budget_block(stratum, label)] if stratum.budget is not None else []
    tests = tuple(Check(OUTCOMES[test.outcome], test.outcome, test.sentence) for test in stratum.tests)
    return [*blocks, Checks(tests)] if tests else blocks


def _boundaries(fit: BoundaryFit) -> Table:
    """The three boundaries with their weights, maximum likelihood beside the posterior."""
    rows: list[tuple[str, ...]] = []
    marked: list[int] = []
    for boundary, model in fit.models.items():
        head: tuple[str, str] = (boundary, percent(model.weight))
        for symbol, _, value in parameters(boundary, model):
            if boundary == fit.chosen:
                marked.append(len(rows))
            form = form_of(symbol)
            rows.append((*head, symbol, point(value, form), bounds(value, form), _best(model, symbol)))
            head = ("", "")
        if model.maximum_likelihood is not None:
            rows.append(("", "", "log lik.", "", "", f"{model.maximum_likelihood.log_likelihood:.2f}"))
    caption = (
        f"Stability boundary; chosen: {fit.chosen}, {FORMULAS[fit.chosen]}; ML: maximum likelihood, no prior"
    )
    return Table(caption, _BOUNDARY_COLUMNS, tuple(rows), frozenset(marked))


def _best(model: BoundaryModel, symbol: str) -> str:
    """The maximum-likelihood value; a parameter that the runs leave open has none."""
    best = model.maximum_likelihood
    if best is None:
        return "-"
    name = _FIELDS.get(symbol, symbol)
    value: float = getattr(best, name)
    return "open" if name in best.open else (form_of(symbol) or significant)(value)


def _pairs(stratum: StratumFit) -> Table:
    """What each tested pair shows by itself, the most exposed first."""
    rows = tuple(
        (
            count(pair.sync_interval),
            rate(pair.learning_rate),
            f"{pair.collapsed} of {pair.runs}",
            scientific(pair.cumulative_lr),
            f"{percent(pair.collapse_probability.low)} to {percent(pair.collapse_probability.high)}",
        )
        for pair in stratum.tested[:MOST_PAIRS]
    )
    more = len(stratum.tested) - len(rows)
    caption = (
        "What can be said: the chance of a collapse by the L that was observed, at each tested pair (90 %)"
    )
    return Table(caption + (f"; {more} less exposed pairs left out" if more else ""), _PAIR_COLUMNS, rows)


def _outlook(stratum: StratumFit) -> list[Block]:
    if not stratum.eta_max:
        return []
    ahead = stratum.outlook
    limits = {} if ahead is None else {limit.sync_interval: limit for limit in ahead.limits}
    rows = [_limit_row(row, limits.get(row.sync_interval)) for row in stratum.eta_max]
    keep = [i for i in range(len(rows[0])) if any(row[i] for row in rows)]
    columns = (
        Column("S", "number", origin="assumed"),
        Column("S_eff", "number", origin="measured"),
        Column("eta_max [90 %]", "number", origin="derived"),
        Column("allowed eta", "number", origin="derived"),
        Column("P(collapse by T) there", "number", origin="derived"),
    )
    table = Table(
        _caption(ahead), tuple(columns[i] for i in keep), tuple(tuple(row[i] for i in keep) for row in rows)
    )
    return [table, *([_chances(ahead)] if ahead is not None and ahead.collapse_probability else [])]


def _limit_row(row: EtaMax, limit: Limit | None) -> tuple[str, ...]:
    """Cells of one S; what is not known, or S_eff where it is S, is left empty."""
    other = row.effective_interval not in (None, row.sync_interval)
    chance = None if limit is None else limit.collapse_probability
    return (
        count(row.sync_interval),
        count(row.effective_interval or 0) if other else "",
        interval(row.eta_max, scientific),
        "" if limit is None else rate(limit.learning_rate),
        "" if chance is None else _chance(chance),
    )


def _caption(ahead: Outlook | None) -> str:
    text = "eta_max: half of the runs are prone to collapse, the three boundaries averaged"
    if ahead is None:
        return text
    text += f"; allowed: by rule '{ahead.rule}' at risk {fixed(ahead.risk)}, with 95 % credibility, not yet rounded"
    return text if ahead.horizon is None else f"{text}; T = {count(ahead.horizon)} updates"


def _chances(ahead: Outlook) -> Table:
    rates = list(dict.fromkeys(pair.learning_rate for pair in ahead.collapse_probability))
    by_interval: dict[int, list[str]] = {}
    for pair in ahead.collapse_probability:
        chance = pair.collapse_probability.estimate
        by_interval.setdefault(pair.sync_interval, []).append(
            Number(percent(chance).removesuffix(" %"), chance)
        )
    given = Column("S", "number", origin="assumed")
    columns = (given, *(Column(rate(eta), "number", origin="derived") for eta in rates))
    rows = tuple((count(S), *cells) for S, cells in by_interval.items())
    caption = f"P(collapse by {count(ahead.horizon or 0)} updates) in percent; intervals are in the JSON"
    return Table(caption, columns, rows)


def _chance(value: Estimate) -> str:
    return f"{percent(value.estimate)} [{percent(value.low)}, {percent(value.high)}]"
