import io
import re
from typing import Literal

import pytest
from rich.cells import cell_len
from rich.console import Console

from reports.terminal import render_terminal
from reports.view import StudyView

STUDIES = ["view", "refused", "hostile", "unknown"]


def rendered(view: StudyView, width: int, colour: bool = False) -> str:
    stream = io.StringIO()
    system: Literal["truecolor"] | None = "truecolor" if colour else None
    render_terminal(view, Console(file=stream, width=width, color_system=system, force_terminal=colour))
    return stream.getvalue()


@pytest.mark.parametrize("width", [40, 80, 120, 200])
@pytest.mark.parametrize("study", STUDIES)
def test_no_line_is_longer_than_the_terminal(study: str, width: int, request: pytest.FixtureRequest) -> None:
    text = rendered(request.getfixturevalue(study), width)
    assert max(cell_len(line) for line in text.splitlines()) <= width


@pytest.mark.parametrize("study", STUDIES)
def test_plain_without_colour(study: str, request: pytest.FixtureRequest) -> None:
    text = rendered(request.getfixturevalue(study), 80)
    assert "\x1b" not in text
    assert all(c == "\n" or c.isprintable() for c in text)
    assert not re.search(r" $", text, flags=re.MULTILINE)


def test_colour_changes_nothing_but_colour(view: StudyView) -> None:
    painted = re.sub(r"\x1b\[[\d;]*m", "", rendered(view, 80, colour=True))
    assert [line.rstrip() for line in painted.splitlines()] == rendered(view, 80).splitlines()


def test_says_what_to_set_first_and_what_to_type_last(view: StudyView) -> None:
    lines = rendered(view, 80).splitlines()
    assert "WHAT TO SET" in lines[:4]
    assert lines[-1].strip() == "calibrate train --from runs/running-sum"
    text = "\n".join(lines)
    for wanted in ("2.6e-3", "2.1 % [0.4 %, 4.8 %]", "eta_0", "report.html", "boundary_undecided"):
        assert wanted in text


def test_narrow_tables_leave_out_and_wide_ones_show(view: StudyView) -> None:
    assert "LR at S = 1" not in rendered(view, 80)
    assert "LR at S = 1" in rendered(view, 200)


def test_names_are_never_markup(hostile: StudyView) -> None:
    text = rendered(hostile, 200, colour=True)
    assert "[red]x[/red]" in text
    assert "\\x1b[31m" in text
    assert "\x1b[31mred" not in text
