"""Cards of `calibrate explain`: where a point stands, and the runs that say so."""

from __future__ import annotations

from collections.abc import Sequence

from calibrator.advice.explain import Explanation, NearRun
from calibrator.laws.types import Estimate, Finding
from reports.cards.blocks import Block, Card, Check, Checks, Column, Fact, Facts, Paragraph, Table
from reports.numbers import (
    count,
    fixed,
    interval,
    name,
    percent,
    plural,
    rate,
    scientific,
    significant,
    span,
)

_RUN_COLUMNS = (
    Column("run"),
    Column("verdict", "verdict"),
    Column("S_eff", "number"),
    Column("eta", "number"),
    Column("L", "number"),
    Column("L at onset", "number", wide_only=True),
    Column("away", "number"),
)
_INFLUENCE_COLUMNS = (
    Column("without"),
    Column("verdict", "verdict", wide_only=True),
    Column("S", "number"),
    Column("eta", "number"),
    Column("allowed eta", "number"),
    Column("P(prone)", "number"),
    Column("how", wide_only=True),
)


def explanation_cards(found: Explanation) -> tuple[Card, ...]:
    """Where the point stands, the runs nearest to it, and what the answer rests on."""
    cards = [
        Card("standing", "Where it stands", (Paragraph(standing(found), strong=True), *_facts(found))),
        Card("runs", "Which runs say so", tuple(_runs(found))),
    ]
    if found.influences:
        cards.append(Card("influence", "What the answer rests on", (_influences(found),)))
    if found.findings:
        cards.append(Card("findings", "Findings", (Checks(tuple(_check(f) for f in found.findings)),)))
    return tuple(cards)


def standing(found: Explanation) -> str:
    """One sentence: safe, uncertain, unsafe or unknown, and why."""
    eta, rule = rate(found.learning_rate), f"rule '{found.rule}' at risk {fixed(found.risk)}"
    if found.standing == "unknown":
        return (
            "Unknown: the runs identify no boundary; `calibrate fit` says why and what to run next. What follows is "
            "what single runs show."
        )
    limit = (
        ""
        if found.limit is None
        else f", which allows up to {rate(found.limit)} at S = {found.sync_interval}"
    )
    if found.standing == "safe":
        useless = any(finding.code == "below_floor" for finding in found.findings)
        word = "Safe, but too small to learn anything useful by T" if useless else "Safe"
        return f"{word}: eta = {eta} is allowed by {rule}{limit}."
    if found.standing == "unsafe":
        return (
            f"Unsafe: eta = {eta} lies above the boundary eta_max with 95 % credibility; more runs than not collapse "
            f"there. It is not allowed by {rule}{limit}."
        )
    chance = "" if found.prone is None else f": P(prone) may be anything from {_ends(found.prone)}"
    said = f"Not shown to be safe: eta = {eta} is not allowed by {rule}{limit}"
    return f"{said}, and not surely above the boundary{chance}."


def _ends(chance: Estimate) -> str:
    return f"{percent(chance.low)} to {percent(chance.high)}"


def _facts(found: Explanation) -> list[Block]:
    facts = []
    if found.prone is not None:
        facts.append(Fact("P(prone)", interval(found.prone, percent), "collapses at some horizon [derived]"))
    if found.collapse_probability is not None and found.horizon is not None:
        note = f"T = {plural(found.horizon, 'update')} [derived]"
        facts.append(Fact("P(collapse by T)", interval(found.collapse_probability, percent), note))
    if found.eta_max is not None:
        where = f"at S_eff = {count(found.effective_interval)}"
        if found.schedule != "lockstep":
            where += f", to which S = {count(found.sync_interval)} under {found.schedule} is converted"
        where += "; half of the runs are prone there [derived]"
        facts.append(Fact("eta_max", interval(found.eta_max, scientific), where))
    if found.over_boundary is not None:
        facts.append(Fact("eta / eta_max", interval(found.over_boundary), "above 1: beyond the boundary"))
    if found.limit is not None:
        facts.append(Fact("Allowed eta", rate(found.limit), f"rule '{found.rule}', risk {fixed(found.risk)}"))
    if found.extrapolation is not None:
        seen = f"L(T) over the longest observed L = {significant(found.longest_cumulative_lr)} [measured]"
        facts.append(Fact("Extrapolation", f"{significant(found.extrapolation)} x", seen))
    return [Facts(tuple(facts))] if facts else []


def _runs(found: Explanation) -> list[Block]:
    nearest = _table("Nearest runs; away: distance in (S_eff, eta) as a factor", found.nearest)
    for_, against = found.survived_beyond, found.collapsed_before
    blocks: list[Block] = [nearest] if found.nearest else [Paragraph("No run entered the fit.")]
    if for_:
        blocks.append(
            _table("For it: survived although neither S_eff nor eta is smaller, longest L first", for_)
        )
    else:
        blocks.append(Paragraph("For it: no run with S_eff and eta at least as large survived."))
    if against:
        blocks.append(_table("Against it: collapsed although neither S_eff nor eta is larger", against))
    else:
        blocks.append(Paragraph("Against it: no run with S_eff and eta at most as large collapsed."))
    if not all(row.in_fit for row in [*found.nearest, *for_, *against]):
        blocks.append(Paragraph("* confirms the recommendation and is not in its fit."))
    return blocks


def _table(caption: str, rows: Sequence[NearRun]) -> Table:
    return Table(f"{caption} [measured]", _RUN_COLUMNS, tuple(_row(row) for row in rows))


def _row(row: NearRun) -> tuple[str, ...]:
    return (
        name(row.run) + ("" if row.in_fit else " *"),
        row.verdict,
        count(row.effective_interval),
        rate(row.learning_rate),
        significant(row.cumulative_lr),
        span(row.cumulative_lr_at_onset, significant),
        f"{row.away:.2f} x",
    )


def _influences(found: Explanation) -> Table:
    now = "" if found.prone is None else f", P(prone) {percent(found.prone.estimate)} with all runs"
    caption = (
        "What rule 'stable' would allow, and P(prone) here, without one run; the most influential runs first"
        f"{now} [derived]"
    )
    rows = tuple(
        (
            name(other.run),
            other.verdict,
            count(other.sync_interval),
            rate(other.learning_rate),
            rate(other.limit_without),
            percent(other.prone_without),
            "fitted again" if other.refitted else f"reweighted, {count(other.effective_draws)} draws",
        )
        for other in found.influences
    )
    return Table(caption, _INFLUENCE_COLUMNS, rows)


def _check(finding: Finding) -> Check:
    return Check("WARN", finding.code, finding.sentence)
