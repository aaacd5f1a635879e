"""`calibrate report` on studies in every state, as a user starts it."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

sys.path.insert(0, str(Path(__file__).parents[2] / "reports"))

from simulated import write_study

from calibrator.cli.main import app
from reports.document import Document, NumberRecord

HEAVY = ("torch", "transformers", "vllm")
MOST_SECONDS, MOST_MEMORY = 10.0, 1e9
"""What the report of 500 runs may take: seconds of processor time, and bytes."""


def report(study: Path, *options: object, **environment: str) -> Result:
    """In this process: a new one would load scipy and matplotlib each time."""
    return CliRunner().invoke(app, ["report", str(study), *map(str, options)], env=environment)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_study(tmp_path_factory.mktemp("studies") / "finished", rates=(4e-4, 1.6e-3, 6.4e-3), seeds=1)


@pytest.fixture
def study(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "study")
    return tmp_path / "study"


def test_writes_both_reports_and_prints_the_short_form(study: Path) -> None:
    before = {path: path.read_bytes() for path in study.rglob("*") if path.is_file()}
    answer = report(study, COLUMNS="80")
    assert answer.exit_code == 0, answer.stderr
    assert "WHAT TO SET" in answer.stdout
    assert max(map(len, answer.stdout.splitlines())) <= 80
    assert (study / "report.html").read_text().startswith("<!doctype html>")
    text = (study / "report.md").read_text()
    assert all((study / link).is_file() for link in re.findall(r"\]\((figures/[^)]+)\)", text))
    assert before == {path: path.read_bytes() for path in before}, "what the study holds stays as it was"


def test_shows_the_recommendation_that_the_study_hands_over(study: Path) -> None:
    path = study / "recommendation.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"horizon": 12_345}))
    told = Document.model_validate_json(report(study, "--format", "json").stdout)
    assert next(n for n in told.numbers if n.symbol == "T").value == NumberRecord(text="12,345", value=12_345)
    spent = json.loads((study / "manifest.json").read_text())
    assert "manifest" in [card.slug for card in told.cards]
    assert f"{spent['updates']:,}" in told.cards[-1].model_dump_json()


def test_formats_go_to_stdout_and_files(study: Path, tmp_path: Path) -> None:
    markdown = report(study, "--format", "markdown")
    assert markdown.stdout.startswith("# Calibration of running-sum")
    assert not (study / "report.md").exists()
    out = tmp_path / "elsewhere" / "r.md"
    assert report(study, "--out", out).stdout == ""
    assert out.read_text() == markdown.stdout
    assert (out.parent / "figures" / "phase.svg").is_file()
    html = tmp_path / "r.html"
    assert report(study, "--out", html).exit_code == 0
    assert report(study, "--format", "html").stdout == ""
    assert html.read_bytes() == (study / "report.html").read_bytes()
    terminal = tmp_path / "r.txt"
    assert report(study, "--out", terminal).exit_code == 0
    assert "WHAT TO SET" in terminal.read_text()
    assert "\x1b" not in terminal.read_text()


def test_colour_is_for_terminals_that_want_it(study: Path) -> None:
    assert "\x1b[" in report(study, "--format", "terminal", FORCE_COLOR="1", TERM="xterm-256color").stdout
    quiet = report(study, "--format", "terminal", FORCE_COLOR="1", NO_COLOR="1", TERM="xterm-256color").stdout
    assert not re.search(r"\x1b\[[\d;]*3\dm", quiet)


@pytest.mark.parametrize(
    ("rates", "words"), [((1e-4,), "None of the 4 runs collapsed"), ((0.1,), "collapsed")]
)
def test_a_refused_study_says_why(tmp_path: Path, rates: tuple[float, ...], words: str) -> None:
    root = write_study(tmp_path / "refused", rates=rates, intervals=(4, 16), seeds=2)
    assert not (root / "recommendation.json").exists()
    answer = report(root)
    assert answer.exit_code == 0, answer.stderr
    assert "Nothing is recommended." in answer.stdout
    assert words in answer.stdout
    html = (root / "report.html").read_text()
    assert html.count('<svg class="spark"') == 4
    assert "FAIL" in html


def test_an_unfinished_study_shows_what_is_there(tmp_path: Path) -> None:
    root = write_study(
        tmp_path / "going", rates=(4e-4, 6.4e-3), intervals=(4,), seeds=1, outcome="unfinished"
    )
    (root / "trials" / "7").mkdir()
    (root / "trials" / "7" / "metrics.jsonl").write_text('{"update":0')
    answer = report(root)
    assert answer.exit_code == 0, answer.stderr
    assert "The sweep has not ended" in answer.stdout
    assert not {"fit.json", "cost.json", "recommendation.json"} & {path.name for path in root.iterdir()}
    text = (root / "report.md").read_text()
    assert "Not recorded: versions of the libraries" in text
    assert text.count("| gmc-S4-") == 2


def test_a_study_without_any_trial_has_a_report(tmp_path: Path) -> None:
    root = write_study(tmp_path / "new", rates=(), outcome="unfinished")
    answer = report(root)
    assert answer.exit_code == 0, answer.stderr
    assert "No run was judged" in (root / "report.md").read_text()


def test_trials_that_came_after_the_recommendation_are_said(study: Path) -> None:
    last = max(int(path.name) for path in (study / "trials").iterdir())
    shutil.copytree(study / "trials" / str(last), study / "trials" / str(last + 1))
    said = " ".join(report(study).stdout.split())
    assert f"`calibrate recommend {study}` takes all of them" in said.replace(
        f"recommend{study}", f"recommend {study}"
    )


def test_a_lost_recommendation_is_not_made_up(study: Path) -> None:
    (study / "recommendation.json").unlink()
    said = " ".join(report(study).stdout.split())
    assert "recommendation.json is gone" in said
    assert f"calibrate recommend {study}" in said
    assert "eta = " not in said.split("NEXT")[1]


def test_mistakes_end_with_one_clear_line(tmp_path: Path, study: Path) -> None:
    nowhere = report(tmp_path / "nowhere")
    assert nowhere.exit_code == 2
    assert "not a study folder" in nowhere.stderr
    unclear = report(study, "--out", tmp_path / "report.pdf")
    assert unclear.exit_code == 2
    assert "--format html, markdown, json, terminal" in unclear.stderr
    (study / "trials" / "0" / "verdict.json").write_text("{")
    broken = report(study)
    assert broken.exit_code != 0
    assert "verdict.json" in broken.stderr
    assert len(broken.stderr.strip().splitlines()) == 1


def test_only_reports_and_plain_files_are_replaced(study: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.html"
    os.mkfifo(pipe)
    before = (study / "fit.json").read_bytes()
    (study / "trials" / "0" / "log.json").symlink_to(tmp_path / "elsewhere.json")
    inside = [study / name for name in ("fit.json", "report/x.json", "cache/report.md", "x/../fit.json")]
    inside += [study / "trials" / "0" / name for name in ("verdict.json", "report.json", "log.json")]
    for out in (*inside, pipe, Path(), tmp_path):
        answer = report(study, "--format", "json", "--out", out)
        assert (answer.exit_code, answer.stderr.count("\n")) == (2, 1), answer.stderr
    assert (study / "fit.json").read_bytes() == before
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert not {"report", "cache"} & {path.name for path in study.iterdir()}
    assert report(study, "--out", study / "report.json").exit_code == 0


def test_a_confirmation_that_is_none_is_made_anew_by_confirm(study: Path) -> None:
    (study / "confirmation.json").write_text("{")
    answer = report(study)
    assert answer.exit_code == 2
    assert "confirmation.json" in answer.stderr
    assert "`calibrate confirm STUDY` makes it anew" in answer.stderr


def test_trials_that_cannot_be_listed_are_an_error(study: Path) -> None:
    before = (study / "fit.json").read_bytes()
    (study / "trials").rename(study / "moved")
    (study / "trials").write_text("")
    answer = report(study)
    assert (answer.exit_code, answer.stderr.count("\n")) == (5, 1)
    assert f"{study / 'trials'} cannot be listed" in answer.stderr
    assert not (study / "report.md").exists()
    assert (study / "fit.json").read_bytes() == before


@pytest.mark.parametrize("content", ["[]\n", "[" * 200_000 + "\n", '{"generate": "x"}\n'])
def test_timings_that_are_none_are_one_clear_line(study: Path, content: str) -> None:
    (study / "trials" / "0" / "timings.jsonl").write_text(content)
    answer = report(study, "--format", "json")
    assert answer.exit_code == 2
    assert "timings.jsonl" in answer.stderr


def test_imports_no_heavy_package(study: Path) -> None:
    code = (
        "import sys\nfrom calibrator.cli import main\n"
        f"sys.argv = ['calibrate', 'report', {str(study)!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print('HEAVY', sorted(set(sys.modules) & set({HEAVY!r})))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert answer.stdout.strip().endswith("HEAVY []")


@pytest.mark.slow
def test_five_hundred_runs(tmp_path: Path) -> None:
    """Processor time and memory of the whole command; the machine may be busy, the program may not be slow."""
    root = write_study(tmp_path / "large", seeds=1, copies=25, staleness=True)
    code = (
        "import resource, sys\nfrom calibrator.cli import main\n"
        f"sys.argv = ['calibrate', 'report', {str(root)!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "used = resource.getrusage(resource.RUSAGE_SELF)\n"
        "print('\\nUSED', used.ru_utime + used.ru_stime, 1024 * used.ru_maxrss)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    seconds, memory = map(float, answer.stdout.split("USED")[1].split())
    assert seconds < MOST_SECONDS, seconds
    assert memory < MOST_MEMORY
    page = (root / "report.html").read_bytes()
    assert len(page) < 3_000_000
    assert page.count(b'<svg class="spark"') == 500
