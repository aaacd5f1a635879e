"""`calibrate compare` on two finished studies."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from calibrator.advice.compare import Comparison

Calibrate = Callable[..., Result]


@pytest.fixture
def other(study: Path, tmp_path: Path) -> Path:
    """The same study made with another epsilon and library, in which everything collapsed at half the L."""
    root = Path(shutil.copytree(study, tmp_path / "other"))
    resolved = json.loads((root / "resolved.json").read_text())
    resolved["config"]["trainer"]["epsilon"] = 0.5
    (root / "resolved.json").write_text(json.dumps(resolved))
    manifest = json.loads((root / "manifest.json").read_text())
    manifest["versions"]["torch"] = "9.9"
    (root / "manifest.json").write_text(json.dumps(manifest))
    for path in (root / "trials").glob("*/config.json"):
        config = json.loads(path.read_text())
        config["trainer"]["epsilon"] = 0.5
        path.write_text(json.dumps(config))
    for path in (root / "trials").glob("*/verdict.json"):
        verdict = json.loads(path.read_text())
        if verdict["verdict"] == "collapsed":
            verdict["cumulative_lr_at_onset"] = [L / 8 for L in verdict["cumulative_lr_at_onset"]]
            path.write_text(json.dumps(verdict))
    return root


def compared(calibrate: Calibrate, first: Path, second: Path) -> Comparison:
    answer = calibrate("compare", first, second, "--json")
    assert answer.exit_code == 0, answer.stderr
    return Comparison.model_validate_json(answer.stdout)


def test_a_copy_does_not_differ(calibrate: Calibrate, study: Path, tmp_path: Path) -> None:
    twin = Path(shutil.copytree(study, tmp_path / "twin"))
    found = compared(calibrate, study, twin)
    assert found.settings == []
    assert found.made_with == []
    assert found.contrasts
    assert not any(row.differs for row in found.contrasts)
    assert all(row.first_larger == pytest.approx(0.5, abs=1e-3) for row in found.contrasts)
    assert found.first.recommendation == found.second.recommendation
    assert found.first.verdicts == found.second.verdicts


def test_settings_versions_and_budget_that_differ_are_named(
    calibrate: Calibrate, study: Path, other: Path
) -> None:
    found = compared(calibrate, study, other)
    assert [(d.key, d.first, d.second) for d in found.settings] == [("trainer.epsilon", 0.2, 0.5)]
    assert [d.key for d in found.made_with] == ["versions.torch"]
    (budget,) = [row for row in found.contrasts if row.quantity == "B"]
    assert budget.differs
    assert budget.ratio.low < 1 / 8 < budget.ratio.high
    assert budget.first_larger > 0.95
    assert {row.sync_interval for row in found.contrasts if row.quantity == "eta_max"} == {4, 16, 64}


@pytest.mark.parametrize("width", [80, 200])
def test_text_names_what_differs_first(
    calibrate: Calibrate, study: Path, other: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    answer = calibrate("compare", study, other)
    assert answer.exit_code == 0
    assert "By more than their intervals differ: B (larger in the first" in answer.stdout.replace("\n", " ")
    assert "trainer.epsilon" in answer.stdout
    assert max(map(len, answer.stdout.splitlines()[1:])) <= width


def test_a_study_is_not_compared_with_itself(calibrate: Calibrate, study: Path) -> None:
    answer = calibrate("compare", study, study / "trials" / "..")
    assert answer.exit_code == 2
    assert "the same study" in answer.stderr


def test_a_study_that_recommends_nothing_says_why(calibrate: Calibrate, study: Path, tmp_path: Path) -> None:
    """Without its deaths the other study knows no boundary: there is nothing to compare, and no number is made up."""
    calm = Path(shutil.copytree(study, tmp_path / "calm"))
    (calm / "recommendation.json").unlink()
    for path in (calm / "trials").glob("*/verdict.json"):
        if json.loads(path.read_text())["verdict"] == "collapsed":
            shutil.rmtree(path.parent)
    found = compared(calibrate, study, calm)
    assert found.contrasts == []
    assert found.second.boundary is None
    assert found.second.recommendation is None
    text = " ".join(calibrate("compare", study, calm).stdout.split())
    assert "recommends nothing" in text
    assert "Nothing to compare" in text


def test_a_study_without_runs_says_so(calibrate: Calibrate, study: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    shutil.copy(study / "resolved.json", empty)
    answer = calibrate("compare", study, empty)
    assert answer.exit_code == 3
    assert "no finished run" in answer.stderr
