"""An answer is written as a whole or not at all, and none is lost to what it does not need."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

Calibrate = Callable[..., Result]


def contents(study: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in study.rglob("*") if path.is_file() and path.name != ".lock"}


def file(path: Path) -> None:
    path.write_text("x")


def dangling(path: Path) -> None:
    path.symlink_to("/nowhere/at/all")


def folder_of_folders(path: Path) -> None:
    for name in ("logs.json", "suggested.json"):
        (path / name).mkdir(parents=True)


def pipes(path: Path) -> None:
    path.mkdir()
    os.mkfifo(path / "logs.json")


@pytest.mark.parametrize("damage", [file, dangling, folder_of_folders, pipes])
def test_a_cache_that_cannot_be_used_costs_time_only(
    calibrate: Calibrate, study: Path, damage: Callable[[Path], None]
) -> None:
    sound = calibrate("recommend", study, "--risk", 0.1, "--dry-run", "--json").stdout
    shutil.rmtree(study / "cache")
    damage(study / "cache")
    explained = calibrate("explain", study, "--sync-interval", 4, "--learning-rate", 1e-3)
    assert (explained.exit_code, explained.stderr) == (0, "")
    answer = calibrate("recommend", study, "--risk", 0.1, "--json")
    assert (answer.exit_code, answer.stdout) == (0, sound)
    assert answer.stderr.count("\n") == 1
    assert "nothing was kept for a quicker next answer" in answer.stderr
    assert json.loads((study / "recommendation.json").read_text()) == json.loads(sound)
    assert '"risk": 0.1' in (study / "recommendation.json").read_text()
    assert (study / "report.md").stat().st_mtime >= (study / "fit.json").stat().st_mtime


def broken(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.write_text("{")


def folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def no_folder(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("x")


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("confirmation.json", broken),
        ("recommendation.json", broken),
        ("confirmation.json", folder),
        ("recommendation.json", folder),
        ("report.md", folder),
        ("manifest.json", folder),
        ("figures", no_folder),
    ],
)
def test_what_refuses_an_answer_does_so_before_anything_is_written(
    calibrate: Calibrate, study: Path, name: str, damage: Callable[[Path], None]
) -> None:
    damage(study / name)
    before = contents(study)
    answer = calibrate("recommend", study, "--risk", 0.1)
    assert answer.exit_code in (2, 5)
    assert answer.stderr.count("\n") == 1
    assert name in answer.stderr
    assert "move" in answer.stderr
    assert contents(study) == before
