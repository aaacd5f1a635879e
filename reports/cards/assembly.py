"""Which cards a format shows, in which order."""

from __future__ import annotations

from functools import lru_cache

from reports.cards.advice import group_epsilon, how_sure, next_card, next_command, what_to_set
from reports.cards.blocks import Block, Card, Checks, Code, Paragraph
from reports.cards.confirmation import confirmation_card
from reports.cards.cost import cost_card
from reports.cards.frontier import frontier
from reports.cards.health import all_checks, health_card, summary
from reports.cards.laws import budget_card, law_tables, naive_card, phase_card, rewards_card
from reports.cards.manifest import files_card, manifest_card
from reports.cards.origins import origins_card
from reports.cards.runs import by_verdict_card, runs_card
from reports.cards.staleness import staleness_card
from reports.view import StudyView


@lru_cache(maxsize=4)
def document_cards(view: StudyView) -> tuple[Card, ...]:
    """Cards of the HTML, Markdown and JSON reports, made once for all of them."""
    return (
        _with_command(view),
        how_sure(view),
        *_confirmed(view),
        health_card(view),
        frontier(view),
        phase_card(view),
        budget_card(view),
        rewards_card(view),
        staleness_card(view),
        group_epsilon(view),
        naive_card(view),
        cost_card(view),
        runs_card(view),
        origins_card(view),
        manifest_card(view),
    )


def _confirmed(view: StudyView) -> tuple[Card, ...]:
    return () if view.confirmed is None else (confirmation_card(view.confirmed),)


def terminal_cards(view: StudyView) -> tuple[Card, ...]:
    """What fits on a screen or two; the rest is in the files that it names."""
    advice = (
        (what_to_set(view), how_sure(view), frontier(view)) if view.recommendation else (what_to_set(view),)
    )
    return (
        *advice,
        *_confirmed(view),
        Card("laws", "Laws", tuple(law_tables(view))),
        findings_card(view),
        by_verdict_card(view),
        files_card(view),
        next_card(view),
    )


def findings_card(view: StudyView) -> Card:
    """The checks that ask for something; what passes or is neither good nor bad is counted only."""
    checks = all_checks(view)
    urgent = tuple(check for check in checks if check.status in ("FAIL", "WARN"))
    blocks: list[Block] = [Checks(urgent)] if urgent else []
    said = summary(checks) if checks else "None."
    if len(checks) > len(urgent):
        said += " The others are in report.html and report.md."
    return Card("findings", "Health checks", (*blocks, Paragraph(said)))


def _with_command(view: StudyView) -> Card:
    card, command = what_to_set(view), next_command(view)
    return (
        Card(card.slug, card.title, (*card.blocks, Code(command)))
        if command and view.recommendation
        else card
    )
