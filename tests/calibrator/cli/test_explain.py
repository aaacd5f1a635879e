"""`calibrate explain` on studies and tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

TABLES = Path(__file__).parents[2] / "data" / "tables"
Calibrate = Callable[..., Result]


def explained(calibrate: Calibrate, source: Path, S: int, eta: float, *options: object) -> dict[str, Any]:
    answer = calibrate("explain", source, "--sync-interval", S, "--learning-rate", eta, "--json", *options)
    assert answer.exit_code == 0, answer.stderr
    content: dict[str, Any] = json.loads(answer.stdout)
    return content


def test_the_recommended_point_is_safe_by_the_numbers_of_the_recommendation(
    calibrate: Calibrate, study: Path
) -> None:
    advice = json.loads((study / "recommendation.json").read_text())
    found = explained(calibrate, study, advice["sync_interval"], advice["learning_rate"])
    row = next(row for row in advice["frontier"] if row["sync_interval"] == advice["sync_interval"])
    assert found["standing"] == "safe"
    assert found["collapse_probability"] == advice["collapse_probability"]
    assert found["limit"] == row["max_learning_rate"]
    assert found["eta_max"] == row["eta_max"]
    assert found["extrapolation"] == pytest.approx(
        advice["learning_rate"] * (advice["horizon"]) / found["longest_cumulative_lr"], rel=0.05
    )  # less by what the warm-up leaves out
    own = [row for row in found["nearest"] if row["away"] == 1]
    assert [row["in_fit"] for row in own] == [False] * len(advice["confirmation"]["trials"])
    assert len(found["influences"]) == 3


def test_a_study_answers_for_the_horizon_that_it_was_asked_for_last(
    calibrate: Calibrate, study: Path
) -> None:
    calibrate("recommend", study, "--horizon", 1600)
    assert explained(calibrate, study, 16, 1e-3)["horizon"] == 1600
    assert explained(calibrate, study, 16, 1e-3, "--horizon", 500)["horizon"] == 500


def test_text_says_why_and_is_as_wide_as_the_terminal(
    calibrate: Calibrate, study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for width in (80, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        answer = calibrate("explain", study, "--sync-interval", 64, "--learning-rate", 8e-3)
        assert answer.exit_code == 0
        assert "Unsafe" in answer.stdout
        assert "WHAT THE ANSWER RESTS ON" in answer.stdout
        assert max(map(len, answer.stdout.splitlines()[1:])) <= width


def test_tables_are_explained_too_and_strata_are_chosen(calibrate: Calibrate, tmp_path: Path) -> None:
    found = explained(calibrate, TABLES / "law-holds.csv", 16, 4e-8, "--horizon", 500)
    assert found["standing"] == "safe"
    lines = (TABLES / "law-holds.csv").read_text().splitlines()
    table = tmp_path / "RUNS.csv"
    rows = [f"{line},{size}" for size in (8, 16) for line in lines[1:]]
    table.write_text("\n".join([f"{lines[0]},G", *rows]))
    assert explained(calibrate, table, 16, 4e-8, "--horizon", 500, "--only", "G=8") == found
    answer = calibrate("explain", table, "--sync-interval", 16, "--learning-rate", 1e-7)
    assert answer.exit_code == 2
    assert "--only" in answer.stderr


def test_where_no_boundary_is_known_it_says_so_and_exits_3(calibrate: Calibrate) -> None:
    answer = calibrate(
        "explain", TABLES / "too-short-to-tell.csv", "--sync-interval", 32, "--learning-rate", 4e-7
    )
    assert answer.exit_code == 3
    assert "Unknown" in answer.stdout
    assert "Nearest runs" in answer.stdout


def test_names_with_escapes_are_shown_as_text(calibrate: Calibrate, tmp_path: Path) -> None:
    table = tmp_path / "RUNS.csv"
    text = (TABLES / "law-holds.csv").read_text()
    first = text.splitlines()[1].split(",")[0]
    table.write_text(text.replace(first + ",", "\x1b[31m[red]<b>x,", 1))
    row = next(line for line in text.splitlines() if line.startswith(first)).split(",")
    answer = calibrate("explain", table, "--sync-interval", row[2], "--learning-rate", row[3])
    assert answer.exit_code == 0
    assert "\x1b" not in answer.stdout
    assert "[red]<b>x" in answer.stdout.replace("\n", "")


@pytest.mark.parametrize("eta", ["0", "-1e-3", "nan", "1e9"])
def test_a_rate_that_is_none_is_one_clear_line(calibrate: Calibrate, study: Path, eta: str) -> None:
    answer = calibrate("explain", study, "--sync-interval", 4, "--learning-rate", eta)
    assert answer.exit_code == 2
    assert len(answer.stderr.strip().splitlines()) == 1


def test_the_longest_l_is_the_same_as_in_the_recommendation(calibrate: Calibrate, study: Path) -> None:
    advice = json.loads((study / "recommendation.json").read_text())
    found = explained(calibrate, study, advice["sync_interval"], advice["learning_rate"])
    assert found["longest_cumulative_lr"] == pytest.approx(advice["valid_for"]["longest_cumulative_lr"])


def test_under_overlap_a_point_is_what_the_frontier_says_of_it(calibrate: Calibrate, study: Path) -> None:
    calibrate("recommend", study, "--schedule", "overlap")
    advice = json.loads((study / "recommendation.json").read_text())
    for row in advice["frontier"]:
        found = explained(calibrate, study, row["sync_interval"], row["learning_rate"])
        assert found["schedule"] == "overlap"
        assert found["eta_max"] == row["eta_max"]
        assert found["limit"] == row["max_learning_rate"]
    between = explained(calibrate, study, 2, 1e-3)
    assert between["effective_interval"] == 6  # mean lag 2.5, as lockstep with S = 6
