"""`calibrate recommend` on finished studies and on runs that no study made."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from calibrator.advice.types import Recommendation
from calibrator.cli.run import keep_another_answer
from calibrator.study.store import StudyFolder, read_record

TABLES = Path(__file__).parents[2] / "data" / "tables"
Calibrate = Callable[..., Result]


def advice(answer: Result) -> dict[str, Any]:
    assert answer.exit_code == 0, answer.stderr
    content: dict[str, Any] = json.loads(answer.stdout)
    return content


def files(root: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file() and p.name != ".lock"
    }


def test_finished_runs_give_s_and_eta_and_nothing_that_was_not_measured(calibrate: Calibrate) -> None:
    found = advice(calibrate("recommend", TABLES / "law-holds.csv", "--horizon", 2000, "--json"))
    truth = json.loads((TABLES / "truth.json").read_text())["law-holds"]
    assert found["sync_interval"] in (8, 16, 32)
    assert found["max_lag"] == found["sync_interval"] - 1
    # below the true boundary, where half of the runs die
    assert found["learning_rate"] < truth["C"] / found["sync_interval"]
    assert (found["group_size"], found["epsilon"]) == (None, None)
    assert all(row["seconds_per_update"] is None for row in found["frontier"])
    codes = {finding["code"] for finding in found["findings"]}
    assert {"settings_not_recorded", "seconds_not_measured"} <= codes
    assert found["objective"] == "progress"


def test_columns_of_the_table_give_g_and_epsilon(calibrate: Calibrate, tmp_path: Path) -> None:
    lines = (TABLES / "law-holds.csv").read_text().splitlines()
    path = tmp_path / "RUNS.csv"
    path.write_text("\n".join([f"{lines[0]},G,epsilon", *(f"{line},16,0.2" for line in lines[1:])]))
    found = advice(calibrate("recommend", path, "--horizon", 2000, "--json"))
    assert (found["group_size"], found["epsilon"]) == (16, 0.2)


def test_lag_bounded_by_another_framework_is_kept(calibrate: Calibrate, tmp_path: Path) -> None:
    """S = 1 with a staleness of up to 7, 15 and 31: the law's S_eff is the same, the user's S stays theirs."""
    lines = (TABLES / "law-holds.csv").read_text().splitlines()
    rows = [line.split(",") for line in lines[1:]]
    path = tmp_path / "RUNS.csv"
    path.write_text(
        "\n".join([lines[0], *(",".join([r[0], r[1], str(int(r[2]) // 2), *r[3:]]) for r in rows)])
    )
    plain = advice(calibrate("recommend", TABLES / "law-holds.csv", "--horizon", 2000, "--json"))
    found = advice(calibrate("recommend", path, "--horizon", 2000, "--json"))
    assert found["learning_rate"] == plain["learning_rate"]
    assert (found["sync_interval"], found["max_lag"]) == (plain["sync_interval"] // 2, plain["max_lag"])
    converted = advice(calibrate("recommend", path, "--horizon", 2000, "--schedule", "lockstep", "--json"))
    assert (converted["sync_interval"], converted["max_lag"]) == (plain["sync_interval"], plain["max_lag"])


def test_a_bound_on_the_lag_leaves_larger_intervals_out(calibrate: Calibrate) -> None:
    table = TABLES / "weak-dependence.csv"
    found = advice(calibrate("recommend", table, "--horizon", 2000, "--max-lag", 10, "--json"))
    assert {row["sync_interval"] for row in found["frontier"]} == {2, 8}
    none = calibrate("recommend", table, "--horizon", 2000, "--max-lag", 0)
    assert none.exit_code == 3
    assert "keeps the lag within 0" in none.stderr


def test_overlap_converts_the_interval(calibrate: Calibrate) -> None:
    table = TABLES / "weak-dependence.csv"
    found = advice(calibrate("recommend", table, "--horizon", 2000, "--schedule", "overlap", "--json"))
    assert found["schedule"] == "overlap"
    assert found["max_lag"] == 2 * found["sync_interval"] - 1
    assert {row["sync_interval"] for row in found["frontier"]} == {2, 10, 42}  # S_eff / 3


def test_refusals_name_the_next_run(calibrate: Calibrate) -> None:
    answer = calibrate("recommend", TABLES / "too-short-to-tell.csv", "--horizon", 2000)
    assert answer.exit_code == 3
    assert "Next: extend S32-lr4e-07-0" in answer.stderr
    answer = calibrate("recommend", TABLES / "too-short-to-tell.csv", "--horizon", 2000, "--json")
    assert answer.exit_code == 3
    assert json.loads(answer.stdout)["recommendation"] is None


def test_strata_are_chosen_never_pooled(calibrate: Calibrate, tmp_path: Path) -> None:
    lines = (TABLES / "law-holds.csv").read_text().splitlines()
    path = tmp_path / "RUNS.csv"
    rows = [f"{line},{size}" for size in (8, 16) for line in lines[1:]]
    path.write_text("\n".join([f"{lines[0]},G", *rows]))
    answer = calibrate("recommend", path, "--horizon", 2000)
    assert answer.exit_code == 2
    assert "G: 16, 8" in answer.stderr
    found = advice(calibrate("recommend", path, "--horizon", 2000, "--only", "G=8", "--json"))
    assert found["group_size"] == 8
    assert calibrate("recommend", path, "--horizon", 2000, "--only", "G=9").exit_code == 2


def test_a_horizon_is_needed_where_no_study_has_one(calibrate: Calibrate) -> None:
    answer = calibrate("recommend", TABLES / "law-holds.csv")
    assert answer.exit_code == 2
    assert "--horizon" in answer.stderr


def test_the_same_question_has_the_same_answer(calibrate: Calibrate, study: Path) -> None:
    before = files(study)
    found = advice(calibrate("recommend", study, "--json"))
    assert found == json.loads(before["recommendation.json"])
    assert found["confirmation"] is not None
    after = files(study)
    for content in (before, after):  # reports name their folder, and this is a copy
        del content["report.html"], content["report.md"]
    assert after == before


def test_a_sweep_that_goes_on_keeps_the_answer_to_another_question(
    calibrate: Calibrate, study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = StudyFolder(study)
    first = read_record(folder.recommendation, Recommendation)
    calibrate("recommend", study, "--horizon", 1600)
    keep_another_answer(folder, read_record(folder.recommendation, Recommendation))
    assert not (study / "previous" / "2").exists()
    keep_another_answer(folder, first)
    kept = json.loads((study / "previous" / "2" / "recommendation.json").read_text())
    assert kept["horizon"] == 1600
    assert str(study / "previous" / "2") in capsys.readouterr().err


def test_another_horizon_is_written_and_the_old_answer_kept(calibrate: Calibrate, study: Path) -> None:
    before = files(study)
    found = advice(calibrate("recommend", study, "--horizon", 1600, "--json"))
    assert found["horizon"] == 1600
    assert found["confirmation"] is None
    after = files(study)
    assert json.loads(after["recommendation.json"]) == found
    assert tomllib.loads(after["trainer.toml"].decode())["updates"] == 1600
    assert "1,600" in after["report.md"].decode()
    for name in ("recommendation.json", "trainer.toml", "report.html", "report.md", "fit.json"):
        assert after[f"previous/1/{name}"] == before[name]
    assert {name for name in before if name.startswith("trials/")} <= set(after)
    back = advice(calibrate("recommend", study, "--json"))
    assert back == json.loads(before["recommendation.json"])
    assert json.loads(files(study)["previous/2/recommendation.json"]) == found


def test_a_dry_run_changes_nothing(calibrate: Calibrate, study: Path) -> None:
    before = files(study)
    answer = calibrate("recommend", study, "--horizon", 1600, "--risk", 0.1, "--dry-run")
    assert answer.exit_code == 0
    assert "T = 1,600" in answer.stdout
    assert files(study) == before


def test_more_risk_allows_no_smaller_rate(calibrate: Calibrate, study: Path) -> None:
    rates = []
    for risk in (0.02, 0.2):
        found = advice(calibrate("recommend", study, "--risk", risk, "--dry-run", "--json"))
        rates.append({row["sync_interval"]: row["max_learning_rate"] for row in found["frontier"]})
    assert all(rates[0][S] < rates[1][S] for S in rates[0])


def test_overlap_is_handed_over_to_the_trainer(calibrate: Calibrate, study: Path) -> None:
    found = advice(calibrate("recommend", study, "--schedule", "overlap", "--json"))
    run = tomllib.loads((study / "trainer.toml").read_text())
    assert run["schedule"] == "overlap"
    assert run["sync_interval"] == found["sync_interval"]
    assert run["overlap"]["max_lag"] == found["max_lag"] == 2 * found["sync_interval"] - 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--risk", "0.7"], "--risk 0.7"),
        (["--horizon", "5"], "warmup"),
        (["--only", "G=8"], "--only"),
    ],
)
def test_wrong_options_for_a_study_are_named(
    calibrate: Calibrate, study: Path, options: list[str], words: str
) -> None:
    answer = calibrate("recommend", study, *options)
    assert answer.exit_code == 2
    assert words in answer.stderr
    assert len(answer.stderr.strip().splitlines()) == 1
