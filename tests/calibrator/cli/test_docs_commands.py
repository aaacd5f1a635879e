"""Every `calibrate` command in the README and under docs/ parses, and those that train nothing run.

`run`, `train` and `confirm` train policies for minutes: here they are parsed only; test_run.py, test_train.py and
test_confirm.py run them on tiny studies.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import typer
from typer.testing import Result

from calibrator.cli.main import app
from calibrator.study.schemas import schemas

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CASES, TABLES = ROOT / "tests/data/cases", ROOT / "tests/data/tables"
TRAINING = {"run", "train", "confirm"}
SYNOPSIS = re.compile(r"\[|\.\.\.|\|")
"""Marks of a usage line, which names options but is no command."""
NEEDED = ("start.md", "checking.md", "faq.md", "README.md", "logs.md")
"""Pages that are known to show commands: a change of their form must not make this test look at nothing."""


def shown(page: Path) -> Iterator[list[str]]:
    """Arguments after `calibrate` of every command in a code block."""
    text = page.read_text()
    fenced = re.findall(r"^```\w*\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    indented = re.findall(r"^    (calibrate .*)$", text, flags=re.MULTILINE)
    for line in [*"\n".join(fenced).splitlines(), *indented]:
        if line.startswith("calibrate "):
            yield shlex.split(line, comments=True)[1:]


COMMANDS = [(page.name, arguments) for page in PAGES for arguments in shown(page)]
PLAIN = [entry for entry in COMMANDS if not SYNOPSIS.search(" ".join(entry[1]))]
USAGES = [entry for entry in COMMANDS if SYNOPSIS.search(" ".join(entry[1]))]


def label(value: Any) -> str:
    return value if isinstance(value, str) else " ".join(value)


def command(name: str) -> click.Command:
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group | typer.core.TyperGroup)
    found = group.commands.get(name)
    assert found is not None, f"no command {name!r}"
    return found  # type: ignore[return-value]


def test_the_pages_show_commands() -> None:
    assert {page for page, _ in PLAIN} >= set(NEEDED)


@pytest.mark.parametrize(("page", "arguments"), PLAIN, ids=label)
def test_each_command_parses(page: str, arguments: list[str]) -> None:
    context = command(arguments[0]).make_context(arguments[0], list(arguments[1:]))
    assert context.params


@pytest.mark.parametrize(("page", "arguments"), USAGES, ids=label)
def test_each_usage_names_options_that_are_there(page: str, arguments: list[str]) -> None:
    known = {name for parameter in command(arguments[0]).params for name in parameter.opts}
    assert set(re.findall(r"--[\w-]+", " ".join(arguments))) <= known


@pytest.fixture
def workspace(study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the studies, tables and logs that the pages name."""
    work = tmp_path / "work"
    (work / "runs").mkdir(parents=True)
    shutil.copytree(study, work / "runs/study")
    shutil.copytree(study, work / "runs/other")
    table = (TABLES / "law-holds.csv").read_text().replace(",gmc,", ",unknown,")  # as `judge --append` writes
    for name in ("runs.csv", "RUNS.csv"):
        (work / name).write_text(table)
    for case, name in (
        ("verl-collapse/metrics.jsonl", "metrics.jsonl"),
        ("verl-collapse/metrics.jsonl", "out/run7/metrics.jsonl"),
        ("trl-linear-decay-stable/trainer_state.json", "checkpoint-600/trainer_state.json"),
        ("eval-only-twice/eval.csv", "wandb-export.csv"),
    ):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CASES / case, work / name)
    monkeypatch.chdir(work)
    return work


@pytest.mark.slow
@pytest.mark.parametrize("page", [page.name for page in PAGES])
def test_commands_that_train_nothing_run(
    workspace: Path, calibrate: Callable[..., Result], page: str
) -> None:
    """In the order of the page, so that one may use what the one before it wrote."""
    for name, arguments in PLAIN:
        if name != page or arguments[0] in TRAINING or "--preset" in arguments:
            continue  # a preset's model is not here to be planned with, and `init` writes one file once
        answer = calibrate(*arguments)
        assert answer.exit_code == 0, f"{page}: calibrate {' '.join(arguments)}: {answer.stderr}"
        assert answer.stdout


def test_presets_of_the_pages_are_written(workspace: Path, calibrate: Callable[..., Result]) -> None:
    for _, arguments in PLAIN:
        if "--preset" in arguments:
            assert calibrate(*arguments, "--force").exit_code == 0


def test_the_files_page_links_every_schema() -> None:
    text = (ROOT / "docs/files.md").read_text()
    linked = set(re.findall(r"\(schemas/([\w-]+)\.schema\.json\)", text))
    assert linked == set(schemas())
