"""Heat maps over (G, epsilon)."""

import dataclasses

from calibrator.advice.types import Recommendation, Suggested, SuggestionRow
from reports.cards.blocks import HeatMap
from reports.cards.maps import map_blocks
from reports.view import StudyView


def maps(view: StudyView) -> list[HeatMap]:
    blocks = map_blocks(view)
    return [block for block in blocks if isinstance(block, HeatMap)]


def with_rows(view: StudyView, rows: list[SuggestionRow], **changes: object) -> StudyView:
    assert view.recommendation is not None
    suggested = Suggested(group_size=32, epsilon=0.2, reason="because", table=rows).model_copy(update=changes)
    rec: Recommendation = view.recommendation.model_copy(update={"suggested": suggested})
    return dataclasses.replace(view, recommendation=rec)


def rows_of(view: StudyView) -> list[SuggestionRow]:
    assert view.recommendation is not None
    assert view.recommendation.suggested is not None
    return view.recommendation.suggested.table


def test_a_map_for_each_quantity_with_the_numbers_of_the_table(view: StudyView) -> None:
    first = maps(view)[0]
    assert first.title == "Cap active, gmc"
    assert (first.rows, first.columns) == (("8", "16", "32"), ("0.1", "0.2", "0.4"))
    at = {(r.group_size, r.epsilon): r.cap_activation for r in rows_of(view)}
    cell = first.cells[2][1]
    assert cell is not None
    assert cell.value == at[32, 0.2]
    assert max(max(line) for line in first.shades) == 1
    assert min(min(line) for line in first.shades) == 0
    assert first.notes == {(1, 1): "swept", (2, 1): "suggested"}
    assert first.extrapolated == {2}


def test_what_epsilon_does_not_change_is_one_column(view: StudyView) -> None:
    signal = next(block for block in maps(view) if block.title.startswith("Groups with signal"))
    assert signal.columns == ("any",)
    assert signal.notes == {(1, 0): "swept", (2, 0): "suggested"}


def test_pairs_that_were_not_rated_stay_empty(view: StudyView) -> None:
    rows = [r for r in rows_of(view) if (r.group_size, r.epsilon) != (8, 0.1)]
    first = maps(with_rows(view, rows))[0]
    assert first.cells[0][0] is None
    assert first.cells[0][1] is not None
    assert maps(with_rows(view, [])) == []


def test_estimators_side_by_side_share_their_shades(view: StudyView) -> None:
    rows = list(rows_of(view))
    rows += [r.model_copy(update={"estimator": "tic", "cap_activation": 2 * r.cap_activation}) for r in rows]
    found = maps(with_rows(view, rows))
    assert [block.title for block in found[:2]] == ["Cap active, gmc", "Cap active, tic"]
    assert max(max(line) for line in found[0].shades) < 1 == max(max(line) for line in found[1].shades)
    assert found[1].notes == {}
