"""`calibrate judge`: the cases with right answers, the answer in words and in JSON, settings, and the table of runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from calibrator.cli.main import app
from calibrator.laws.table import read_runs
from calibrator.verdicts.types import RunVerdict

CASES = Path(__file__).parents[2] / "data" / "cases"
NAMES = sorted(path.name for path in CASES.iterdir())


def judge(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["judge", *map(str, arguments)])


def log_of(name: str) -> Path:
    (log,) = (path for path in (CASES / name).iterdir() if path.name != "case.json")
    return log


def settings_of(name: str) -> Path:
    return CASES / name / "case.json"


def verdict_of(result: Result) -> RunVerdict:
    assert result.exit_code == 0, result.output
    return RunVerdict.model_validate_json(result.stdout)


def fits(found: tuple[float, float] | None, right: list[float]) -> bool:
    """Overlapping, and not wider than twice the right interval."""
    if found is None:
        return False
    return found[0] <= right[1] and right[0] <= found[1] and found[1] - found[0] <= 2 * (right[1] - right[0])


@pytest.mark.parametrize("guessed", [False, True], ids=["named", "guessed"])
@pytest.mark.parametrize("name", NAMES)
def test_cases(tmp_path: Path, name: str, guessed: bool) -> None:
    case = json.loads(settings_of(name).read_text())
    right, settings = case["expect"], settings_of(name)
    if guessed:
        settings = tmp_path / "settings.json"
        settings.write_text(json.dumps({key: value for key, value in case.items() if key != "framework"}))
    found = verdict_of(judge(log_of(name), "--settings", settings, "--json"))
    assert found.verdict == right["verdict"]
    assert (found.onset_updates is not None) == found.verdict.is_event
    for field in ("onset_updates", "cumulative_lr_at_onset"):
        if field in right:
            assert fits(getattr(found, field), right[field])
    if "cumulative_lr_total" in right:
        assert found.cumulative_lr_total is not None
        low, high = right["cumulative_lr_total"]
        assert low <= found.cumulative_lr_total <= high
    assert found.updates == right.get("updates", found.updates)
    assert (
        any("taken for" in warning or "could not be told" in warning for warning in found.warnings) == guessed
    )


def test_without_the_rate_that_a_console_rounded(tmp_path: Path) -> None:
    found = verdict_of(
        judge(log_of("console-nan"), "--framework", "verl-console", "--reward-floor", -1, "--json")
    )
    assert found.verdict == "diverged"
    assert (found.cumulative_lr_total, found.cumulative_lr_at_onset) == (None, None)
    assert any("--learning-rate" in warning for warning in found.warnings)


def test_the_answer_in_words(tmp_path: Path) -> None:
    result = judge(log_of("verl-collapse"), "--settings", settings_of("verl-collapse"))
    lines = result.stdout.splitlines()
    assert lines[0].startswith("collapsed: ")
    assert lines[0].endswith("480 updates")
    assert any(line.startswith("onset ") and "(296, 300] updates" in line for line in lines)
    assert any(line.startswith("L at onset ") and "(2.96e-4, 3e-4]" in line for line in lines)
    assert any("S = 4" in line and "S_eff = 4" in line for line in lines)
    assert any(line.startswith("- critic/rewards/mean fell from") for line in lines)
    assert result.stderr == ""


def test_options_win_over_the_settings_file() -> None:
    result = judge(
        log_of("verl-collapse"), "--settings", settings_of("verl-collapse"), "--updates-per-row", 2, "--json"
    )
    assert verdict_of(result).updates == 240


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ('{"framwork": "verl"}', "unknown key framwork"),
        ('{"framework": "verrl"}', "take one of calibrate, verl"),
        ('{"updates_per_row": 0}', "updates_per_row = 0"),
        ('{"learning_rate": NaN}', "learning_rate"),
        ('{"reward_floor": "low"}', "reward_floor = 'low'"),
        ("[1]", "no JSON object"),
        ("{", "is not JSON"),
    ],
)
def test_wrong_settings_are_named(tmp_path: Path, settings: str, words: str) -> None:
    file = tmp_path / "settings.json"
    file.write_text(settings)
    result = judge(log_of("verl-collapse"), "--settings", file)
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("what", ["no/such/file.jsonl", "/dev/null", "."])
def test_what_is_no_log_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.chdir(tmp_path)
    result = judge(what)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"calibrate: {what}")
    assert len(result.stderr.strip().splitlines()) == 1


def test_escapes_and_markup_are_shown_as_text(tmp_path: Path) -> None:
    log = tmp_path / "a\x1b[31m<b>.jsonl"
    rows = [
        {"step": i, "reward\x1b]0;x\x07": 0.5, "<script>": i, "score\x1b[2J": 0.1 * (i % 3)}
        for i in range(20)
    ]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for result in (judge(log), judge(log, "--json"), judge(log, "--reward-column", "x\x1b[0m")):
        assert "\x1b" not in result.output
        assert "\x07" not in result.output
    assert "x1b[31m<b>" in judge(log).stdout
    assert judge(log, "--reward-column", "x\x1b[0m").exit_code == 2


# --- the table of runs -----------------------------------------------------------------------------


def test_appended_runs_are_read_by_the_laws(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    for name in NAMES:
        result = judge(log_of(name), "--settings", settings_of(name), "--append", table, "--run", name)
        assert result.exit_code == 0, result.output
        assert f"run {name} added to" in result.stderr
    runs = {run.run: run for run in read_runs(table)}
    assert sorted(runs) == NAMES
    collapse = runs["verl-collapse"]
    assert (collapse.sync_interval, collapse.max_lag, collapse.updates) == (4, 3, 480)
    assert (collapse.estimator, collapse.seed, collapse.learning_rate) == ("unknown", 0, 1e-6)
    assert collapse.cumulative_lr_onset_high == pytest.approx(3e-4)
    assert runs["trl-linear-decay-stable"].learning_rate == pytest.approx(1e-5)


def test_the_run_is_named_after_its_folder_where_all_files_are_called_alike(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    options: list[Any] = ["--append", table, "--estimator", "gmc", "--seed", 3]
    assert judge(log_of("verl-collapse"), *options).exit_code == 0
    (run,) = read_runs(table)
    assert (run.run, run.estimator, run.seed) == ("verl-collapse", "gmc", 3)
    again = judge(log_of("verl-collapse"), *options)
    assert again.exit_code == 0
    assert "is already in" in again.stderr
    other = judge(log_of("verl-collapse"), *options, "--sync-interval", 2)
    assert other.exit_code == 2
    assert "--run" in other.stderr
    assert len(read_runs(table)) == 1


def test_a_run_without_a_rate_cannot_be_appended_but_is_judged(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    result = judge(log_of("console-nan"), "--append", table)
    assert result.exit_code == 2
    assert result.stdout.startswith("diverged")
    assert "--learning-rate" in result.stderr
    assert not table.exists()


def test_judging_imports_no_heavy_package() -> None:
    code = (
        "import sys\nfrom calibrator.cli import main\n"
        f"sys.argv = ['calibrate', 'judge', {str(log_of('verl-collapse'))!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('HEAVY', sorted(set(sys.modules) & {'torch', 'transformers', 'vllm', 'optuna', 'matplotlib'}))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert answer.stdout.strip().endswith("HEAVY []")


@pytest.mark.parametrize("option", ["--settings", "--append"])
def test_a_pipe_is_no_settings_file_and_no_table(tmp_path: Path, option: str) -> None:
    log, pipe = tmp_path / "run.csv", tmp_path / "pipe"
    log.write_text("update,reward,learning_rate\n" + "".join(f"{i},0.5,1e-6\n" for i in range(100)))
    os.mkfifo(pipe)
    answer = judge(log, option, pipe)
    assert answer.exit_code == 2
    assert "no regular file" in answer.stderr
