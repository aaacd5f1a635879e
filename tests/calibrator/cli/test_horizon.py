"""`calibrate recommend` for horizons in other units, prices, and where the runs bound nothing or only from above."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from calibrator.laws import fit
from calibrator.study.store import StudyFolder

TABLES = Path(__file__).parents[2] / "data" / "tables"
HEADER = (
    "run,estimator,sync_interval,learning_rate,updates,verdict,cumulative_lr,"
    "cumulative_lr_onset_low,cumulative_lr_onset_high"
)
Calibrate = Callable[..., Result]


def answered(answer: Result) -> dict[str, Any]:
    assert answer.exit_code == 0, answer.stderr
    content: dict[str, Any] = json.loads(answer.stdout)
    return content


def dry(calibrate: Calibrate, study: Path, *options: object) -> dict[str, Any]:
    return answered(calibrate("recommend", study, "--dry-run", "--json", *options))


def table(folder: Path, verdict: str) -> Path:
    """Runs at three intervals and two rates, all with one verdict."""
    lines = [HEADER]
    for S in (2, 8, 32):
        for rate in (1e-4, 4e-4):
            onset = f"{rate * 100},{rate * 110}" if verdict == "collapsed" else ","
            lines.append(f"S{S}-{rate},gmc,{S},{rate},400,{verdict},{rate * 400},{onset}")
    path = folder / "RUNS.csv"
    path.write_text("\n".join(lines))
    return path


def test_tokens_are_converted_by_the_tokens_of_an_update(calibrate: Calibrate, study: Path) -> None:
    found = dry(calibrate, study, "--horizon", "1152000tokens")
    assert (found["horizon"], found["horizon_asked"]) == (1000, "1152000tokens")  # 9 tokens x 16 x 8
    same = dry(calibrate, study, "--horizon", 1000)
    assert same["frontier"] == found["frontier"]
    said = {finding["code"]: finding["sentence"] for finding in found["findings"]}
    assert "1,152 response tokens" in said["horizon_converted"]


def test_hours_are_converted_interval_by_interval(calibrate: Calibrate, study: Path) -> None:
    found = dry(calibrate, study, "--horizon", "0.1h", "--price-per-hour", 3)
    for row in found["frontier"]:
        assert row["horizon"] == int(360 / row["seconds_per_update"] + 1e-6)
        assert row["price"] == pytest.approx(0.3, rel=0.01)
    assert len({row["horizon"] for row in found["frontier"]}) == len(found["frontier"])
    chosen = next(row for row in found["frontier"] if row["sync_interval"] == found["sync_interval"])
    assert found["horizon"] == chosen["horizon"]


def test_a_horizon_in_hours_is_handed_over_in_updates(calibrate: Calibrate, study: Path) -> None:
    found = answered(calibrate("recommend", study, "--horizon", "0.02h", "--json"))
    assert f"updates = {found['horizon']}\n" in (study / "trainer.toml").read_text()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--horizon", "3epochs"], "prompts there are to train on"),
        (["--horizon", "soon"], "5e8tokens"),
        (["--horizon", "2000tokens"], "warmup"),
        (["--price-per-hour", "-1"], "--price-per-hour"),
    ],
)
def test_what_cannot_be_converted_says_what_is_missing(
    calibrate: Calibrate, study: Path, options: list[str], words: str
) -> None:
    answer = calibrate("recommend", study, "--dry-run", *options)
    assert answer.exit_code == 2
    assert words in answer.stderr
    assert len(answer.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--horizon", "5e8tokens"], "response tokens"),
        (["--horizon", "48h"], "seconds per update"),
        (["--horizon", "3epochs"], "data set"),
        (["--horizon", "2000", "--price-per-hour", "2"], "seconds per update"),
    ],
)
def test_tables_convert_nothing(calibrate: Calibrate, options: list[str], words: str) -> None:
    answer = calibrate("recommend", TABLES / "law-holds.csv", *options)
    assert answer.exit_code == 2
    assert words in answer.stderr


def test_ten_times_the_longest_run_says_what_it_rests_on(calibrate: Calibrate, study: Path) -> None:
    near = dry(calibrate, study)
    far = dry(calibrate, study, "--horizon", round(10.5 * near["horizon"] / near["extrapolation"]))
    assert far["extrapolation"] > 10
    said = {finding["code"]: finding["sentence"] for finding in far["findings"]}
    assert "rests on the law alone" in said["extrapolates"]
    assert "was never seen" in said["extrapolates"]


def test_where_nothing_collapsed_there_are_bounds_by_point_and_one_run_to_make(
    calibrate: Calibrate, tmp_path: Path
) -> None:
    path = table(tmp_path, "stable")
    answer = calibrate("recommend", path, "--horizon", 5000)
    assert answer.exit_code == 3
    assert "no bound on C" in answer.stderr
    assert answer.stderr.count("Next") == 1
    assert "P(collapse by L)" in answer.stdout
    told = calibrate("recommend", path, "--horizon", 5000, "--json")
    assert told.exit_code == 3
    content = json.loads(told.stdout)
    assert content["recommendation"] is None
    assert content["upper_bounds"] == []
    assert len(content["tested"]) == 6
    for pair in content["tested"]:
        assert pair["collapse_probability"]["low"] == 0
        assert pair["collapse_probability"]["high"] == pytest.approx(0.9)  # one run: 1 - 0.1
        assert pair["cumulative_lr"] == pytest.approx(400 * pair["learning_rate"])


def test_where_all_collapsed_there_is_an_upper_bound(calibrate: Calibrate, tmp_path: Path) -> None:
    path = table(tmp_path, "collapsed")
    answer = calibrate("recommend", path, "--horizon", 5000)
    assert answer.exit_code == 3
    assert "0.0001 at S = 2" in answer.stderr
    content = json.loads(calibrate("recommend", path, "--horizon", 5000, "--json").stdout)
    assert [(b["sync_interval"], b["learning_rate"]) for b in content["upper_bounds"]] == [
        (2, 1e-4),
        (8, 1e-4),
        (32, 1e-4),
    ]
    assert all(b["collapse_probability"]["low"] == pytest.approx(0.1) for b in content["upper_bounds"])


def test_the_cache_is_used_and_checked_against_the_runs(calibrate: Calibrate, study: Path) -> None:
    before = dry(calibrate, study)
    seconds = time.process_time()
    again = dry(calibrate, study)
    quick = time.process_time() - seconds
    assert again == before
    assert quick < 1.0, quick  # of processor time, imports aside: the machine may be busy
    # A verdict that changes is seen, whatever the cache holds.
    verdict = next(
        path
        for path in sorted((study / "trials").glob("*/verdict.json"))
        if '"collapsed"' in path.read_text()
    )
    stable = json.loads(verdict.read_text()) | {
        "verdict": "stable",
        "onset_updates": None,
        "cumulative_lr_at_onset": None,
    }
    verdict.write_text(json.dumps(stable))
    assert dry(calibrate, study)["frontier"] != before["frontier"]


def test_another_question_finds_its_fit_in_the_cache(
    calibrate: Calibrate, study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs that confirmed the first answer enter the fit of the second."""
    fit_runs = fit.fit_runs
    calls = []
    monkeypatch.setattr(fit, "fit_runs", lambda runs: calls.append(len(runs)) or fit_runs(runs))
    dry(calibrate, study)
    dry(calibrate, study, "--horizon", 1600)
    dry(calibrate, study, "--risk", 0.1)
    assert calls == []
    shutil.rmtree(study / "cache")
    dry(calibrate, study)
    assert len(calls) == 1


@pytest.mark.parametrize("pattern", ["fit-*.safetensors", "logs.json", "suggested.json"])
def test_a_broken_or_missing_cache_changes_nothing(calibrate: Calibrate, study: Path, pattern: str) -> None:
    before = dry(calibrate, study)
    for cut in (0, 9):
        for path in (study / "cache").glob(pattern):
            path.write_bytes(path.read_bytes()[:-cut] if cut else b"")
        assert dry(calibrate, study) == before


def test_hours_without_end_are_refused_like_other_units(calibrate: Calibrate, study: Path) -> None:
    for horizon in ("1e308h", "1e10"):
        answer = calibrate("recommend", study, "--horizon", horizon, "--dry-run", "--json")
        assert answer.exit_code == 2
        assert "1000000000 updates" in answer.stderr


def test_a_dry_run_wants_no_lock_and_leaves_nothing(calibrate: Calibrate, study: Path) -> None:
    with StudyFolder(study).locked():
        assert calibrate("recommend", study, "--dry-run").exit_code == 0


def test_less_lag_than_overlap_can_have_is_said(calibrate: Calibrate, study: Path) -> None:
    answer = calibrate("recommend", study, "--schedule", "overlap", "--max-lag", 0, "--dry-run")
    assert answer.exit_code == 3
    assert "at least 1 update" in " ".join(answer.stdout.split())
