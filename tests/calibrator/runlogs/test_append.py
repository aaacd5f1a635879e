"""RUNS.csv grows by one row a run, whole at any moment, and reads back as the run that was judged."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from calibrator.errors import LogError, StudyConfigError
from calibrator.laws.table import read_runs
from calibrator.laws.types import Run
from calibrator.runlogs.append import append_run
from calibrator.runlogs.judged import judge_log
from calibrator.runlogs.settings import LogSettings, settings_of
from calibrator.verdicts.types import Verdict


def run(name: str = "a", **changes: Any) -> Run:
    fields: dict[str, Any] = {
        "run": name,
        "estimator": "gmc",
        "sync_interval": 4,
        "max_lag": 7,
        "learning_rate": 1.1e-6,
        "seed": 3,
        "updates": 480,
        "verdict": Verdict.COLLAPSED,
        "cumulative_lr": 4.8e-4,
        "onset_low": 296.0,
        "onset_high": 300.5,
        "cumulative_lr_onset_low": 2.96e-4,
        "cumulative_lr_onset_high": 1 / 3000,
    }
    return Run(**{**fields, **changes})


STABLE = {
    "verdict": Verdict.STABLE,
    "onset_low": None,
    "onset_high": None,
    "cumulative_lr_onset_low": None,
    "cumulative_lr_onset_high": None,
}


def test_runs_read_back_as_they_were(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    runs = [run("a"), run("b, with a comma", **STABLE), run("c", strata={"model": "m", "G": "8"})]
    assert all(append_run(table, each) for each in runs)
    assert read_runs(table) == runs


def test_the_same_row_is_not_repeated_and_another_of_its_name_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    append_run(table, run())
    before = table.read_bytes()
    assert not append_run(table, run())
    with pytest.raises(LogError, match="--run"):
        append_run(table, run(updates=481))
    assert table.read_bytes() == before


def test_columns_that_a_table_lacks_are_added(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    table.write_text(
        "run,estimator,sync_interval,learning_rate,updates,verdict,task\nx,gmc,8,1e-3,100,stable,sum\n"
    )
    append_run(table, run(strata={"G": "8"}))
    first, second = read_runs(table)
    assert (first.run, first.strata, first.cumulative_lr) == ("x", {"task": "sum"}, pytest.approx(0.1))
    assert second == run(strata={"G": "8"})


def test_a_file_that_is_no_table_is_left_alone(tmp_path: Path) -> None:
    table = tmp_path / "notes.txt"
    table.write_text("my notes\n")
    with pytest.raises(StudyConfigError):
        append_run(table, run())
    assert table.read_text() == "my notes\n"


def test_what_is_refused_leaves_nothing_beside(tmp_path: Path) -> None:
    notes, table = tmp_path / "fit.json", tmp_path / "runs.csv"
    notes.write_text("{}")
    with pytest.raises(StudyConfigError):
        append_run(notes, run())
    assert [path.name for path in tmp_path.iterdir()] == ["fit.json"]
    append_run(table, run())
    table.with_name(".runs.csv.lock").unlink()
    with pytest.raises(LogError):
        append_run(table, run(updates=481))
    assert not append_run(table, run())
    assert {path.name for path in tmp_path.iterdir()} == {"fit.json", "runs.csv"}


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    table = tmp_path / "runs.csv"
    table.symlink_to(tmp_path / "kept" / "mine.csv")
    append_run(table, run())
    append_run(table, run("b"))
    assert table.is_symlink()
    assert len(read_runs(tmp_path / "kept" / "mine.csv")) == 2


def test_several_commands_at_a_time_lose_no_row(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: append_run(table, run(f"run {i}")), range(16)))
    assert sorted(each.run for each in read_runs(table)) == sorted(f"run {i}" for i in range(16))


@pytest.mark.parametrize("name", ["red \x1b[31m", "two\nlines", "nul \x00"])
@pytest.mark.parametrize("key", ["run", "estimator"])
def test_names_that_would_write_on_the_terminal_are_refused(key: str, name: str) -> None:
    with pytest.raises(LogError, match=f"{key}.*printable"):
        settings_of({key: name}, source="options")


def test_a_folder_with_such_a_name_gives_a_name_without(tmp_path: Path) -> None:
    log = tmp_path / "red \x1b[31m.jsonl"
    log.write_text("".join(f'{{"step": {i}, "reward": 0.5, "learning_rate": 1e-6}}\n' for i in range(40)))
    assert judge_log(log, LogSettings()).name == "red ?[31m"
