"""`calibrate fit` on tables and study folders: text, JSON, exit codes, hostile input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

TABLES = Path(__file__).parents[2] / "data" / "tables"
HEADER = "run,estimator,sync_interval,learning_rate,updates,verdict,onset_low,onset_high"

Calibrate = Callable[..., Result]


def fitted(answer: Result) -> list[dict[str, Any]]:
    strata: list[dict[str, Any]] = json.loads(answer.stdout)["strata"]
    return strata


@pytest.mark.parametrize("name", ["law-holds", "weak-dependence", "warmup"])
def test_the_truth_of_a_table_lies_inside_the_printed_intervals(calibrate: Calibrate, name: str) -> None:
    truth = json.loads((TABLES / "truth.json").read_text())[name]
    answer = calibrate("fit", TABLES / f"{name}.csv", "--json")
    assert answer.exit_code == 0
    (stratum,) = fitted(answer)
    power, budget = stratum["boundary"]["models"]["power"], stratum["budget"]
    for estimate, value in ((power["C"], "C"), (power["alpha"], "alpha"), (budget["B"], "B")):
        assert estimate["low"] <= truth[value] <= estimate["high"]
        assert estimate["level"] == 0.9
    rejected = {test["law"] for test in stratum["tests"] if test["outcome"] == "rejected"}
    assert rejected == ({"alpha = 1"} if name == "weak-dependence" else set())


def test_the_text_shows_what_a_colleague_checks(calibrate: Calibrate) -> None:
    answer = calibrate("fit", TABLES / "weak-dependence.csv", "--horizon", "1000")
    assert answer.exit_code == 0
    for words in (
        "48 runs: 16 events, 32 survivors",
        "power",
        "ceiling",
        "constant",
        "collapse budget",
        "alpha = 1 is rejected",
        "beta = 1 (onset after B/eta updates) agrees",
        "gamma = 0 (the same B at every S) agrees",
        "P(collapse by 1,000 updates)",
        "T = 1,000 updates",
        "naive / censored",
        "boundary_undecided",
    ):
        assert words in " ".join(answer.stdout.split())
    assert max(map(len, answer.stdout.splitlines())) <= 80


def test_where_nothing_can_be_said_the_next_run_is_named(calibrate: Calibrate) -> None:
    answer = calibrate("fit", TABLES / "too-short-to-tell.csv")
    assert answer.exit_code == 3
    said = " ".join(answer.stdout.split())
    assert "No boundary can be given" in said
    assert "Next: extend S32-lr4e-07-0 (S = 32, eta = 4e-07) from 60 to 240 updates" in said
    assert "0 of 1" in said
    (stratum,) = fitted(calibrate("fit", TABLES / "too-short-to-tell.csv", "--json"))
    assert stratum["boundary"] is None
    assert stratum["identifiable"] == {"C": False, "alpha": False, "B": False}


def test_strata_are_fitted_apart_and_told_apart(calibrate: Calibrate, tmp_path: Path) -> None:
    path = tmp_path / "RUNS.csv"
    lines = (TABLES / "law-holds.csv").read_text().splitlines()
    short = (TABLES / "too-short-to-tell.csv").read_text().splitlines()
    rows = [f"{lines[0]},G", *(f"{line},8" for line in lines[1:]), *(f"{line},16" for line in short[1:])]
    path.write_text("\n".join(rows))
    answer = calibrate("fit", path, "--json")
    assert answer.exit_code == 0  # one of the two has a boundary
    few, many = fitted(answer)  # strata are ordered as texts: 16 before 8
    assert (few["strata"], few["boundary"]) == ({"G": "16"}, None)
    assert many["strata"] == {"G": "8"}
    (alone,) = fitted(calibrate("fit", TABLES / "law-holds.csv", "--json"))
    assert many["boundary"] == alone["boundary"]
    assert "GMC, G = 16" in calibrate("fit", path).stdout


def test_chances_by_the_horizon_rise_with_it(calibrate: Calibrate) -> None:
    found = []
    for horizon in (100, 10_000):
        (stratum,) = fitted(calibrate("fit", TABLES / "law-holds.csv", "--horizon", horizon, "--json"))
        found.append(
            [pair["collapse_probability"]["estimate"] for pair in stratum["outlook"]["collapse_probability"]]
        )
    assert len(found[0]) == 18
    assert all(short <= long for short, long in zip(*found, strict=True))
    assert max(found[0]) < max(found[1])


def test_rules_order_the_limits(calibrate: Calibrate) -> None:
    limits = {}
    for rule in ("conservative", "stable", "budget-limited"):
        answer = calibrate("fit", TABLES / "law-holds.csv", "--horizon", 2000, "--rule", rule, "--json")
        (stratum,) = fitted(answer)
        limits[rule] = [limit["learning_rate"] for limit in stratum["outlook"]["limits"]]
    for small, middle, large in zip(*(limits[rule] for rule in limits), strict=True):
        assert small <= middle <= large
    refused = calibrate("fit", TABLES / "law-holds.csv", "--rule", "conservative")
    assert refused.exit_code == 2
    assert "give --horizon" in refused.stderr


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (f"{HEADER}\na,gmc,8,1e-3,1e30,stable,,", "line 2, column 'updates'"),
        (f"{HEADER}\na,gmc,8,1e9,10,stable,,", "line 2, column 'learning_rate': '1e9' must be at most 1000"),
        (f"{HEADER}\na,gmc,8,1e-3,10,collapsed,50,60", "line 2, column 'onset_low': 50 lies after the end"),
        (f'{HEADER}\n"a\nb",gmc,8,x,10,stable,,', "line 3, column 'learning_rate'"),
        (f"{HEADER},\na,gmc,8,1e-3,10,stable,,,", "column 9 has no name"),
        (HEADER.replace(",verdict", "") + "\na,gmc,8,1e-3,10,,", "column(s) verdict missing"),
        (f"{HEADER}\n\x1b[31ma,gmc,8,no,10,stable,,", "column 'learning_rate'"),
        (f"{HEADER}\n{'x' * 200_000},gmc,8,1e-3,10,stable,,", "is not CSV"),
        (f"{HEADER}\na,gmc,8,1e-3,10,stable,,\na,gmc,8,1e-3,10,stable,,", "appears twice"),
    ],
)
def test_hostile_tables_end_with_one_line(
    calibrate: Calibrate, tmp_path: Path, content: str, words: str
) -> None:
    path = tmp_path / "RUNS.csv"
    path.write_text(content)
    answer = calibrate("fit", path)
    assert answer.exit_code == 2
    assert words in answer.stderr
    assert len(answer.stderr.strip().splitlines()) == 1
    assert "\x1b" not in answer.stderr


def test_hostile_names_are_shown_as_text(calibrate: Calibrate, tmp_path: Path) -> None:
    path = tmp_path / "RUNS.csv"
    path.write_text(f"{HEADER},<b>\x1b[31m\n[red]\x1b]0;x\x07,gmc,8,1e-3,10,stable,,,\x1b[2J<script>")
    answer = calibrate("fit", path)
    assert answer.exit_code == 3
    assert "\x1b" not in answer.stdout
    assert "\x07" not in answer.stdout
    assert "[red]" in answer.stdout


def test_a_file_given_twice_is_refused(calibrate: Calibrate) -> None:
    answer = calibrate("fit", TABLES / "warmup.csv", TABLES / "warmup.csv")
    assert answer.exit_code == 2
    assert "each file once" in answer.stderr


@pytest.mark.parametrize(
    "option", [("--risk", "0"), ("--risk", "0.5"), ("--risk", "nan"), ("--horizon", "0")]
)
def test_options_out_of_range_are_refused(calibrate: Calibrate, option: tuple[str, str]) -> None:
    assert calibrate("fit", TABLES / "law-holds.csv", *option).exit_code == 2


def test_a_study_folder_is_fitted_from_its_trials(calibrate: Calibrate, simulated_study: Path) -> None:
    (stratum,) = fitted(calibrate("fit", simulated_study, "--json"))
    assert stratum["runs"] == len(list((simulated_study / "trials").iterdir()))
    assert stratum["estimator"] == "gmc"
    assert stratum["strata"]["G"] == "16"


def test_an_empty_folder_is_no_source(calibrate: Calibrate, tmp_path: Path) -> None:
    answer = calibrate("fit", tmp_path)
    assert answer.exit_code == 2
    assert len(answer.stderr.strip().splitlines()) == 1


def test_only_chooses_a_setting(calibrate: Calibrate, tmp_path: Path) -> None:
    lines = (TABLES / "law-holds.csv").read_text().splitlines()
    both = [f"{lines[0]},G", *(f"{line},8" for line in lines[1:]), *(f"{line},16" for line in lines[1:])]
    table = tmp_path / "runs.csv"
    table.write_text("\n".join(both) + "\n")
    assert len(fitted(calibrate("fit", table, "--json"))) == 2
    (stratum,) = fitted(calibrate("fit", table, "--only", "G=8", "--json"))
    assert stratum["strata"] == {"G": "8"}
    answer = calibrate("fit", table, "--only", "G=7")
    assert (answer.exit_code, "no run has that setting" in answer.stderr) == (2, True)


def test_a_column_of_remarks_is_pointed_out(calibrate: Calibrate, tmp_path: Path) -> None:
    lines = (TABLES / "law-holds.csv").read_text().splitlines()
    noted = [f"{lines[0]},note", *(f"{line},remark {i}" for i, line in enumerate(lines[1:]))]
    table = tmp_path / "runs.csv"
    table.write_text("\n".join(noted) + "\n")
    answer = calibrate("fit", table)
    assert answer.exit_code == 3
    assert "column 'note'" in answer.stderr
    assert "never pooled" in answer.stderr


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_table_with_semicolons_is_told_apart_from_a_log(
    calibrate: Calibrate, tmp_path: Path, encoding: str
) -> None:
    table = tmp_path / "runs.csv"
    table.write_text((TABLES / "law-holds.csv").read_text().replace(",", ";"), encoding=encoding)
    answer = calibrate("fit", table)
    assert answer.exit_code == 2
    assert ("separate them by commas" if encoding == "utf-8" else "save it as UTF-8") in answer.stderr
