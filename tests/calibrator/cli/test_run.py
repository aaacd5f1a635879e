"""The main job through the command line: a small study, killed, continued, handed over."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reports.numbers import rate

CALIBRATE = str(Path(sys.executable).with_name("calibrate"))
STUDY = """
[trainer]
group_size = 8
prompts_per_update = 4

[probe]
prompts = 64

[task]
held_out = 64

[sweep]
sync_intervals = [2, 16]
learning_rates = [4e-4, 1.2e-2]
rounds = 3
round_size = 3
longest = 96
confirmations = 1

[advice]
horizon = 96

[output]
folder = "study"
"""
pytestmark = pytest.mark.slow


def start(*arguments: object, cwd: Path) -> subprocess.Popen[str]:
    """In a process group of its own, so that a signal to the group reaches all of it and nothing else."""
    return subprocess.Popen(
        [CALIBRATE, *map(str, arguments)],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    process = start(*arguments, cwd=cwd)
    out, err = process.communicate(timeout=600)
    return subprocess.CompletedProcess(list(arguments), process.returncode, out, err)


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, float, subprocess.CompletedProcess[str]]:
    """An uninterrupted study, its seconds and its output."""
    cwd = tmp_path_factory.mktemp("uninterrupted")
    (cwd / "study.toml").write_text(STUDY)
    begin = time.monotonic()
    answer = run("run", "study.toml", cwd=cwd)
    return cwd, time.monotonic() - begin, answer


@pytest.fixture
def copy(finished: tuple[Path, float, Any], tmp_path: Path) -> Path:
    shutil.copytree(finished[0], tmp_path / "work")
    return tmp_path / "work"


def answers(folder: Path) -> dict[str, bytes]:
    return {name: (folder / "study" / name).read_bytes() for name in ("fit.json", "recommendation.json")}


def verdict_files(folder: Path) -> dict[str, tuple[int, int]]:
    """Identity of every verdict: a trial that ran again would have a new one."""
    return {
        path.parent.name: (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in (folder / "study/trials").glob("*/verdict.json")
    }


def test_a_study_ends_with_a_recommendation_and_its_files(
    finished: tuple[Path, float, subprocess.CompletedProcess[str]],
) -> None:
    folder, _, answer = finished
    assert answer.returncode == 0, answer.stderr
    advice = json.loads((folder / "study/recommendation.json").read_text())
    assert {
        "sync_interval",
        "learning_rate",
        "group_size",
        "epsilon",
        "collapse_probability",
    } <= advice.keys()
    numbers = f"S = {advice['sync_interval']}, eta = {rate(advice['learning_rate'])}, G = 8, epsilon = 0.20"
    assert numbers in answer.stdout.splitlines()[-2]
    assert "calibrate train --from study" in answer.stdout.splitlines()[-1]
    for name in (
        "report.html",
        "report.md",
        "manifest.json",
        "trainer.toml",
        "figures/phase.svg",
        "cost.json",
    ):
        assert (folder / "study" / name).stat().st_size > 0
    assert advice["confirmation"]["learning_rate"] == advice["learning_rate"]


def test_running_again_changes_no_byte_and_runs_no_trial(copy: Path) -> None:
    before, verdicts = answers(copy), verdict_files(copy)
    begin = time.monotonic()
    assert run("run", "study.toml", cwd=copy).returncode == 0
    assert answers(copy) == before
    assert verdict_files(copy) == verdicts
    assert time.monotonic() - begin < 60


def test_killed_at_five_random_moments_the_study_says_the_same(
    finished: tuple[Path, float, Any], tmp_path: Path
) -> None:
    folder, seconds, _ = finished
    (tmp_path / "study.toml").write_text(STUDY)
    moments = random.Random(20)  # noqa: S311
    kept: dict[str, tuple[int, int]] = {}
    for _ in range(5):
        process = start("run", "study.toml", cwd=tmp_path)
        time.sleep(moments.uniform(0.1, 0.6) * seconds)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        now = verdict_files(tmp_path)
        assert kept.items() <= now.items()
        kept = now
    assert kept, "the kills came before any trial was finished"
    assert run("run", "study.toml", cwd=tmp_path).returncode == 0
    assert kept.items() <= verdict_files(tmp_path).items()
    assert answers(tmp_path) == answers(folder)
    assert verdict_files(tmp_path).keys() == verdict_files(folder).keys()


def test_killing_the_parent_alone_leaves_no_orphan_that_disturbs(
    finished: tuple[Path, float, Any], tmp_path: Path
) -> None:
    """The same command follows at once; a trial that lived on would write beside its successor."""
    (tmp_path / "study.toml").write_text(STUDY)
    process = start("run", "study.toml", cwd=tmp_path)
    while not list(tmp_path.glob("study/trials/*/metrics.jsonl")):
        time.sleep(0.1)
    time.sleep(2)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert run("run", "study.toml", cwd=tmp_path).returncode == 0
    assert answers(tmp_path) == answers(finished[0])


def test_an_interrupt_saves_the_state_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY)
    process = start("run", "study.toml", cwd=tmp_path)
    while not list(tmp_path.glob("study/trials/*/metrics.jsonl")):
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "run the same command again" in err
    assert "Traceback" not in err


def test_a_spent_budget_is_exit_4_with_what_can_be_said(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY)
    answer = run("run", "study.toml", "--max-updates", "150", cwd=tmp_path)
    assert answer.returncode == 4
    assert "max_updates = 150 is spent" in answer.stderr
    assert (tmp_path / "study/fit.json").exists()
    spent = [json.loads(p.read_text())["updates"] for p in (tmp_path / "study/trials").glob("*/verdict.json")]
    assert 0 < sum(spent) <= 150


@pytest.mark.parametrize("cut", [3, 200])
def test_a_truncated_journal_loses_nothing(copy: Path, cut: int) -> None:
    before, verdicts = answers(copy), verdict_files(copy)
    journal = copy / "study/journal.log"
    journal.write_bytes(journal.read_bytes()[:-cut])
    answer = run("run", "study.toml", cwd=copy)
    assert answer.returncode == 0, answer.stderr
    assert answers(copy) == before
    assert verdict_files(copy) == verdicts


def test_a_lost_journal_loses_nothing(copy: Path) -> None:
    before, verdicts = answers(copy), verdict_files(copy)
    (copy / "study/journal.log").unlink()
    assert run("run", "study.toml", cwd=copy).returncode == 0
    assert answers(copy) == before
    assert verdict_files(copy) == verdicts


def test_a_garbled_journal_is_named_and_nothing_is_lost(copy: Path) -> None:
    journal = copy / "study/journal.log"
    content = journal.read_bytes()
    journal.write_bytes(b"garbage\n" + content)
    verdicts = verdict_files(copy)
    answer = run("run", "study.toml", cwd=copy)
    assert answer.returncode == 2
    assert "journal.log, line 1" in answer.stderr
    assert "Traceback" not in answer.stderr
    assert verdict_files(copy) == verdicts


def test_a_study_of_another_config_is_refused_with_the_difference(copy: Path) -> None:
    (copy / "study.toml").write_text(STUDY.replace("group_size = 8", "group_size = 4"))
    answer = run("run", "study.toml", cwd=copy)
    assert answer.returncode == 2
    assert "trainer.group_size was 8, is 4" in answer.stderr


def test_status_tells_where_the_study_stands(copy: Path) -> None:
    answer = run("status", "study", cwd=copy)
    assert answer.returncode == 0
    assert "recommendation.json" in answer.stdout
    assert "collapsed" in answer.stdout


def test_train_runs_the_recommendation_and_saves_the_policy(copy: Path) -> None:
    answer = run("train", "--from", "study", "--horizon", "40", "--seed", "77", cwd=copy)
    assert answer.returncode == 0, answer.stderr
    config = json.loads((copy / "study/train/seed-77-T40/config.json").read_text())
    advice = json.loads((copy / "study/recommendation.json").read_text())
    for key in ("sync_interval", "learning_rate"):
        assert config[key] == advice[key]
    assert config["trainer"]["group_size"] == advice["group_size"]
    assert (copy / "study/train/seed-77-T40/policy/model.safetensors").exists()
    taken = "study/train/seed-77-T40"
    again = run("train", "--from", "study", "--horizon", "44", "--seed", "77", "--out", taken, cwd=copy)
    assert again.returncode == 2
    assert "holds another run" in again.stderr


def test_a_finished_training_run_is_told_not_repeated(copy: Path) -> None:
    arguments = ("train", "--from", "study", "--horizon", "24", "--seed", "78")
    first = run(*arguments, cwd=copy)
    metrics = copy / "study/train/seed-78-T24/metrics.jsonl"
    before = metrics.stat().st_mtime_ns
    second = run(*arguments, cwd=copy)
    assert (first.returncode, second.returncode) == (0, 0)
    assert second.stdout == first.stdout
    assert metrics.stat().st_mtime_ns == before


def test_train_never_writes_into_a_folder_of_something_else(copy: Path) -> None:
    (copy / "mine").mkdir()
    (copy / "mine/thesis.tex").write_text("years of work")
    for out in ("mine", ".", "study"):
        answer = run("train", "--from", "study", "--out", out, cwd=copy)
        assert answer.returncode == 2
        assert "is not empty" in answer.stderr
    assert (copy / "mine/thesis.tex").read_text() == "years of work"


def test_light_commands_on_a_real_study_import_no_heavy_package(copy: Path) -> None:
    code = (
        "import sys\nfrom calibrator.cli import main\nsys.argv = ['calibrate', 'status', 'study']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "assert not {'torch', 'transformers', 'vllm'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=copy, check=True, timeout=60, capture_output=True)


def test_train_warns_outside_and_says_when_the_run_collapses(copy: Path) -> None:
    answer = run("train", "--from", "study", "--learning-rate", "0.05", "--seed", "3", cwd=copy)
    assert answer.returncode == 3
    assert "warning: eta = 0.05 is above" in answer.stderr
    assert "collapsed" in answer.stdout


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system in memory with the mount options of the test; needs root."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", request.param, "tmpfs", str(disk)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a file system needs root")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=False)  # noqa: S607


@pytest.mark.parametrize(
    ("small_disk", "words"),
    [("size=256k", "no space left"), ("size=24k", "no space left"), ("ro", "read-only")],
    indirect=["small_disk"],
)
def test_a_full_or_read_only_disk_is_one_clear_line_and_exit_5(
    tmp_path: Path, small_disk: Path, words: str
) -> None:
    (tmp_path / "study.toml").write_text(STUDY.replace('folder = "study"', f'folder = "{small_disk}/study"'))
    answer = run("run", "study.toml", cwd=tmp_path)
    assert answer.returncode == 5, answer.stderr
    assert words in answer.stderr
    assert "Traceback" not in answer.stderr
    assert sum(line.startswith("calibrate:") for line in answer.stderr.splitlines()) == 1
