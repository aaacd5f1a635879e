import dataclasses
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from calibrator.laws.types import FitResult
from reports.cards.blocks import FigureName
from reports.curves import reward_on_clock
from reports.figures import TITLES, describe, figure_files, figure_svg, keys_of, panel_svgs
from reports.view import StudyView

FIGURES = list(TITLES)


@pytest.mark.parametrize("figure", FIGURES)
def test_same_bytes_every_time(view: StudyView, figure: FigureName) -> None:
    assert figure_svg(view, figure) == figure_svg(view, figure)
    assert panel_svgs(view, figure) == panel_svgs(view, figure)


@pytest.mark.parametrize("figure", FIGURES)
@pytest.mark.parametrize("study", ["view", "refused", "hostile", "unknown"])
def test_well_formed_and_described(study: str, figure: FigureName, request: pytest.FixtureRequest) -> None:
    view: StudyView = request.getfixturevalue(study)
    if not keys_of(view, figure):
        assert figure in {"sawtooth", "bias"}
        assert panel_svgs(view, figure) == []
        return
    for svg in (figure_svg(view, figure), *panel_svgs(view, figure)):
        root = ET.fromstring(svg)  # noqa: S314
        assert root.get("role") == "img"
        name = "{http://www.w3.org/2000/svg}"
        assert root.findtext(f"{name}title")
        assert root.findtext(f"{name}desc")
        assert "<metadata" not in svg
        assert "<style" not in svg
        ids = re.findall(r'\bid="([^"]+)"', svg)
        assert len(ids) == len(set(ids))


def test_references_resolve_and_ids_differ_between_panels(view: StudyView) -> None:
    every: list[str] = []
    for figure in FIGURES:
        for svg in panel_svgs(view, figure):
            ids = set(re.findall(r'\bid="([^"]+)"', svg))
            used = set(re.findall(r"url\(#([^)]+)\)", svg)) | set(re.findall(r'href="#([^"]+)"', svg))
            assert used <= ids
            every += ids
    assert len(every) == len(set(every))


def test_a_file_is_on_white_and_a_page_takes_its_colours(view: StudyView) -> None:
    file, page = figure_svg(view, "phase", "file"), figure_svg(view, "phase", "page")
    assert "#ffffff" in file
    assert "currentColor" not in file
    assert "currentColor" in page
    assert "var(--v-stable)" in page
    assert not re.search(r"#[0-9a-f]{6}\b", page)


def test_text_alternative_has_the_numbers(view: StudyView) -> None:
    text = describe(view, "phase", view.keys())
    assert "15 runs: 9 stable, 4 collapsed" in text
    assert "Recommended: S = 4, eta = 2.6e-3" in text
    assert "Collapse budget B" in describe(view, "budget", view.keys())


def test_files_by_name(view: StudyView) -> None:
    names = ["phase", "budget", "rewards", "sawtooth", "bias"]
    assert list(figure_files(view)) == [f"figures/{name}.svg" for name in names]
    never = tuple(dataclasses.replace(row, recorded=None) for row in view.runs)
    assert list(figure_files(dataclasses.replace(view, runs=never))) == [
        f"figures/{n}.svg" for n in names[:3]
    ]
    assert figure_files(StudyView("empty", "x", (), FitResult(strata=[]))) == {}


def test_reward_curve_keeps_its_mean_and_few_points(view: StudyView) -> None:
    row = view.runs[0]
    assert row.curve is not None
    total, value = reward_on_clock(row, 10)
    assert total.size == value.size == 10
    assert np.all(np.diff(total) > 0)
    assert total[-1] <= row.run.cumulative_lr
    assert reward_on_clock(dataclasses.replace(row, curve=None), 10)[0].size == 0


def test_matplotlib_is_loaded_only_for_figures() -> None:
    code = (
        "import sys, reports.html, reports.figures, reports.terminal, reports.markdown; "
        "assert not {'matplotlib', 'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
