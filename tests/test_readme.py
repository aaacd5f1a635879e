"""What the README shows must be true: its task, its study file, its files, its commands."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

from calibrator.cli.main import app
from calibrator.study.config import StudyConfig
from trainer.config import TaskConfig
from trainer.tasks import load_task

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", README, re.DOTALL)
    assert found is not None
    return found.group(1)


def test_the_task_of_the_readme_is_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mytask.py").write_text(block("python"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    named = StudyConfig.model_validate(tomllib.loads(block("toml"))).task
    assert named == TaskConfig(name="mytask:PartialCredit")
    task = load_task(named)
    examples = task.prompts(np.random.default_rng(0), 20)
    references = [example.reference for example in examples]
    assert task.score(references, references) == [task.full_marks] * 20
    assert task.score([""], ["12345678"]) == [0.0]


def test_linked_files_exist() -> None:
    for target in re.findall(r"\]\(([^)h][^)]*)\)", README):
        assert (ROOT / target).exists(), target


def test_commands_of_the_readme_exist() -> None:
    known = {
        command.name or command.callback.__name__ for command in app.registered_commands if command.callback
    }
    assert set(re.findall(r"^calibrate (\w+)", README, re.MULTILINE)) <= known
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert f"\n{target}:" in makefile
