"""Which cards a format shows, in which order."""

from __future__ import annotations

from reports.cards.advice import group_epsilon, how_sure, next_card, next_command, what_to_set
from reports.cards.blocks import Block, Card, Checks, Code, Paragraph
from reports.cards.cost import cost_card
from reports.cards.frontier import frontier
from reports.cards.health import finding_checks, health_card, severity
from reports.cards.laws import budget_card, law_tables, naive_card, phase_card, rewards_card
from reports.cards.manifest import files_card, manifest_card
from reports.cards.origins import origins_card
from reports.cards.runs import by_verdict_card, runs_card
from reports.cards.staleness import staleness_card
from reports.numbers import plural
from reports.view import StudyView


def document_cards(view: StudyView) -> tuple[Card, ...]:
    """Cards of the HTML and Markdown reports."""
    return (
        _with_command(view),
        how_sure(view),
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


def terminal_cards(view: StudyView) -> tuple[Card, ...]:
    """What fits on a screen or two; the rest is in the files that it names."""
    advice = (
        (what_to_set(view), how_sure(view), frontier(view)) if view.recommendation else (what_to_set(view),)
    )
    return (
        *advice,
        Card("laws", "Laws", tuple(law_tables(view))),
        findings_card(view),
        by_verdict_card(view),
        files_card(view),
        next_card(view),
    )


def findings_card(view: StudyView) -> Card:
    """The findings that ask for something; results that are neither good nor bad are counted only."""
    checks = sorted(finding_checks(view), key=severity)
    urgent = tuple(check for check in checks if check.status in ("FAIL", "WARN"))
    notes = len(checks) - len(urgent)
    blocks: list[Block] = [Checks(urgent)] if urgent else []
    if notes:
        blocks.append(Paragraph(f"{plural(notes, 'further note')} in report.html and report.md."))
    return Card("findings", "Findings", tuple(blocks or [Paragraph("None.")]))


def _with_command(view: StudyView) -> Card:
    card, command = what_to_set(view), next_command(view)
    return (
        Card(card.slug, card.title, (*card.blocks, Code(command)))
        if command and view.recommendation
        else card
    )
