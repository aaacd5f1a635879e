import dataclasses
from typing import TypeVar

import pytest

from calibrator.laws.types import Finding, FitResult
from calibrator.verdicts.types import Verdict
from reports.cards import Card, document_cards, labelled_numbers, terminal_cards
from reports.cards.advice import next_command
from reports.cards.blocks import Block, Checks, Facts, Figure, Paragraph, Runs, Settings, Table
from reports.cards.health import all_checks
from reports.view import StudyView

ORDER = [
    "set", "sure", "health", "frontier", "phase", "budget", "rewards", "staleness", "group", "naive", "cost",
    "runs", "origins", "manifest",
]  # fmt: skip


B = TypeVar("B", bound=Block)


def block_of(card: Card, kind: type[B]) -> B:
    return next(b for b in card.blocks if isinstance(b, kind))


def card(view: StudyView, slug: str) -> Card:
    return next(c for c in document_cards(view) if c.slug == slug)


def test_order_and_settings(view: StudyView) -> None:
    assert [c.slug for c in document_cards(view)] == ORDER
    items = block_of(card(view, "set"), Settings).items
    assert [(i.symbol, i.value) for i in items] == [
        ("S", "4"),
        ("eta", "2.6e-3"),
        ("G", "16"),
        ("epsilon", "0.2"),
    ]
    assert all(i.why and i.origin in {"measured", "derived", "assumed"} for i in items)


def test_an_unknown_group_size_is_said(view: StudyView) -> None:
    assert view.recommendation is not None
    rec = view.recommendation.model_copy(update={"group_size": None})
    items = block_of(card(dataclasses.replace(view, recommendation=rec), "set"), Settings).items
    assert items[2].value == "not known"


def test_an_estimator_without_epsilon_is_said_not_to_use_it(view: StudyView) -> None:
    assert view.recommendation is not None
    rec = view.recommendation.model_copy(update={"estimator": "cispo", "suggested": None})
    other = dataclasses.replace(view, recommendation=rec)
    assert "cispo" in block_of(card(other, "set"), Settings).items[3].why
    assert "no cap on trajectory ratios" in block_of(card(other, "group"), Paragraph).text


def test_every_card_of_a_refused_study_says_something(refused: StudyView) -> None:
    for c in document_cards(refused):
        assert c.blocks
    text = block_of(card(refused, "set"), Paragraph).text
    assert text.startswith("Nothing is recommended. No run collapsed")
    assert next_command(refused) is None


def test_an_empty_study_renders_cards() -> None:
    empty = StudyView("empty", "runs/empty", (), FitResult(strata=[]))
    for c in (*document_cards(empty), *terminal_cards(empty)):
        assert all(not isinstance(b, Figure) for b in c.blocks)
        assert c.blocks


def test_command_is_quoted_for_a_shell(refused: StudyView, view: StudyView) -> None:
    spaced = dataclasses.replace(view, folder="runs/my study; rm -rf x")
    assert next_command(spaced) == "calibrate train --from 'runs/my study; rm -rf x'"
    assert (
        next_command(dataclasses.replace(refused, next_command="calibrate run s.toml"))
        == "calibrate run s.toml"
    )


def test_rows_have_as_many_cells_as_columns(view: StudyView, refused: StudyView) -> None:
    for study in (view, refused):
        for c in (*document_cards(study), *terminal_cards(study)):
            for block in c.blocks:
                if isinstance(block, Table):
                    assert all(len(row) == len(block.columns) for row in block.rows)
                    assert all(0 <= i < len(block.rows) for i in block.marked)


def test_every_run_is_listed_with_its_evidence(view: StudyView) -> None:
    runs = block_of(card(view, "runs"), Runs)
    items = [item for group in runs.groups for item in group.items]
    assert sorted(item.trial for item in items) == sorted(row.trial for row in view.runs)
    assert all(item.evidence and item.curve for item in items)
    assert all(item.verdict == group.verdict for group in runs.groups for item in group.items)
    died = [item for item in items if item.verdict in {"collapsed", "diverged"}]
    assert died
    assert all(item.onset and "L at onset" in dict(item.details) for item in died)


def test_findings_appear_once_and_the_worst_first(view: StudyView) -> None:
    finding = Finding(code="no_events", sentence="No run collapsed.")
    assert view.recommendation is not None
    rec = view.recommendation.model_copy(update={"findings": [finding, *view.recommendation.findings]})
    checks = all_checks(dataclasses.replace(view, recommendation=rec, findings=(finding,)))
    assert [c.code for c in checks].count("no_events") == 1
    assert checks[0].status == "FAIL"
    ranks = [("FAIL", "WARN", "NOTE", "PASS").index(c.status) for c in checks]
    assert ranks == sorted(ranks)


def test_a_failed_confirmation_fails_the_check(view: StudyView) -> None:
    assert view.recommendation is not None
    assert view.recommendation.confirmation is not None
    bad = view.recommendation.confirmation.model_copy(update={"verdicts": ["stable", "collapsed"]})
    rec = view.recommendation.model_copy(update={"confirmation": bad})
    checks = {c.code: c for c in all_checks(dataclasses.replace(view, recommendation=rec))}
    assert checks["confirmation"].status == "FAIL"
    assert "1 of 2 stable" in checks["confirmation"].sentence


def test_numbers_carry_their_origin(view: StudyView) -> None:
    numbers = labelled_numbers(view)
    assert {n.origin for n in numbers} == {"measured", "derived", "assumed"}
    assert {"S", "eta", "G", "epsilon", "T", "C", "B", "L"} <= {n.symbol for n in numbers}


def test_naive_stands_beside_censored(view: StudyView) -> None:
    table = block_of(card(view, "naive"), Table)
    assert table.rows[0][2:] == ("7.0e-3", "1.5 x")


@pytest.mark.parametrize("missing", ["cost", "recommendation", "manifest"])
def test_what_is_missing_is_said_in_a_sentence(view: StudyView, missing: str) -> None:
    empty: object = {} if missing == "manifest" else None
    thin = dataclasses.replace(view, **{missing: empty})  # type: ignore[arg-type]
    slugs = {"cost": "cost", "recommendation": "sure", "manifest": "manifest"}
    blocks = card(thin, slugs[missing]).blocks
    assert isinstance(blocks[0], Paragraph)
    assert len(blocks) == (2 if missing == "cost" else 1)  # what the trials took is known without cost.json


def test_manifest_is_flattened(view: StudyView) -> None:
    facts = {f.label: f.value for f in block_of(card(view, "manifest"), Facts).items}
    assert facts["versions.torch"] == "2.13.0"
    assert facts["hardware.gpu"] == "-"
    assert facts["seeds"] == "0 to 2"


def test_runs_are_told_apart_by_what_differs(view: StudyView) -> None:
    key = view.keys()[0]
    assert view.label(key) == "gmc"
    other = view.fit.strata[0].model_copy(update={"strata": {**dict(key[1]), "G": "32"}})
    wider = dataclasses.replace(view, fit=FitResult(strata=[*view.fit.strata, other]))
    assert [wider.label(k) for k in wider.keys()] == ["gmc, G = 16", "none", "gmc, G = 32"]  # noqa: SIM118


def test_confirmations_at_another_setting_stand_with_their_estimator(view: StudyView) -> None:
    row = next(r for r in view.runs if r.role == "confirmation")
    moved = dataclasses.replace(row, run=row.run.model_copy(update={"strata": {"G": "32"}}))
    changed = dataclasses.replace(view, runs=(*view.runs, moved))
    assert changed.keys() == view.keys()
    assert moved in changed.runs_of(view.keys()[0])


def test_terminal_lists_verdicts_and_findings(view: StudyView) -> None:
    slugs = [c.slug for c in terminal_cards(view)]
    assert slugs == ["set", "sure", "frontier", "laws", "findings", "verdicts", "files", "next"]
    findings = next(c for c in terminal_cards(view) if c.slug == "findings")
    assert block_of(findings, Checks).items
    assert Verdict.COLLAPSED in {row[0] for row in block_of(terminal_cards(view)[5], Table).rows}
