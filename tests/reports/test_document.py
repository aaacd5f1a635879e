"""The JSON form, and that every number carries its origin."""

import dataclasses
import json

import pytest

from calibrator.laws.types import FitResult
from reports.cards import document_cards
from reports.cards.blocks import Facts, Table
from reports.document import Document, HeatMapRecord, NumberRecord, RunsRecord, TableRecord, render_json
from reports.numbers import Number
from reports.view import StudyView

STUDIES = ["view", "refused", "hostile", "unknown"]


@pytest.fixture(scope="module")
def told(view: StudyView) -> Document:
    return Document.model_validate_json(render_json(view))


@pytest.mark.parametrize("study", STUDIES)
def test_strict_json_that_its_own_model_reads(study: str, request: pytest.FixtureRequest) -> None:
    view: StudyView = request.getfixturevalue(study)
    text = render_json(view)
    content = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert Document.model_validate_json(text).model_dump(mode="json") == content
    assert [card["slug"] for card in content["cards"]] == [card.slug for card in document_cards(view)]
    assert "\\u001b" not in text
    assert "\x1b" not in text


@pytest.mark.parametrize("study", STUDIES)
def test_every_number_has_an_origin(study: str, request: pytest.FixtureRequest) -> None:
    for card in document_cards(request.getfixturevalue(study)):
        for block in card.blocks:
            if isinstance(block, Table) and not any(c.kind == "origin" for c in block.columns):
                bare = [c.title for c in block.columns if c.kind == "number" and c.origin is None]
                assert bare == [], card.title
            if isinstance(block, Facts):
                assert [
                    f.label for f in block.items if isinstance(f.value, Number) and f.origin is None
                ] == []


def test_numbers_keep_their_value(told: Document, view: StudyView) -> None:
    rec = view.recommendation
    assert rec is not None
    eta = next(n for n in told.numbers if n.symbol == "eta").value
    assert eta == NumberRecord(text="2.6e-3", value=rec.learning_rate)
    chance = next(n for n in told.numbers if n.symbol == "P").value
    assert isinstance(chance, NumberRecord)
    p = rec.collapse_probability
    assert (chance.value, chance.low, chance.high) == (p.estimate, p.low, p.high)
    assert chance.text == "2.1 % [0.4 %, 4.8 %]"


def test_an_empty_study_is_a_document() -> None:
    empty = Document.model_validate_json(render_json(StudyView("empty", "x", (), FitResult(strata=[]))))
    assert empty.numbers == []


def test_unknown_rates_are_null(unknown: StudyView) -> None:
    runs = next(
        block
        for card in Document.model_validate_json(render_json(unknown)).cards
        for block in card.blocks
        if isinstance(block, RunsRecord)
    )
    item = runs.groups[0].items[0]
    assert item.facts["eta"] == NumberRecord(text="unknown", value=None)


def test_runs_hold_their_curves(told: Document, view: StudyView) -> None:
    blocks = [block for card in told.cards for block in card.blocks]
    (runs,) = [block for block in blocks if isinstance(block, RunsRecord)]
    items = [item for group in runs.groups for item in group.items]
    assert len(items) == len(view.runs)
    for item in items:
        assert len(item.cumulative_lr) == len(item.reward) > 2
        assert item.cumulative_lr == sorted(item.cumulative_lr)
    assert any(isinstance(block, HeatMapRecord) for block in blocks)
    assert any(isinstance(block, TableRecord) and block.marked for block in blocks)


def test_a_curve_that_cannot_be_read_is_empty(view: StudyView) -> None:
    blind = dataclasses.replace(view, runs=tuple(dataclasses.replace(r, curve=None) for r in view.runs))
    text = render_json(blind)
    assert '"reward": []' in text
