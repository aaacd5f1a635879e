"""Light commands: quick, without torch, and honest about bad input."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from calibrator.study.config import StudyConfig, load_study_config, parse_config
from calibrator.study.store import prepare
from trainer.models import EMBEDDED_FOLDER

CALIBRATE = [str(Path(sys.executable).with_name("calibrate"))]
TABLES = Path(__file__).parents[2] / "data" / "tables"
HEAVY = ("torch", "transformers", "vllm")


def run(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CALIBRATE, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["run", "--help"],
        ["plan"],
        ["init"],
        ["status", "nowhere"],
        ["train", "--from", "nowhere"],
        ["fit", str(TABLES / "law-holds.csv"), "--horizon", "100"],
        ["recommend", str(TABLES / "law-holds.csv"), "--horizon", "100"],
        ["explain", str(TABLES / "law-holds.csv"), "--sync-interval", "8", "--learning-rate", "4e-7"],
        ["confirm", "nowhere"],
        ["compare", "nowhere", "somewhere"],
    ],
)
def test_light_commands_import_no_heavy_package(tmp_path: Path, arguments: list[str]) -> None:
    code = (
        "import sys\nfrom calibrator.cli import main\n"
        f"sys.argv = ['calibrate', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print('HEAVY', sorted(set(sys.modules) & set({HEAVY!r})))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert answer.stdout.strip().endswith("HEAVY []")


def test_help_takes_under_half_a_second(tmp_path: Path) -> None:
    """Of processor time, best of three: the machine may be busy, the program may not be slow."""
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert run("--help", cwd=tmp_path).returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < 0.5


def test_init_writes_a_file_that_plan_reads_and_never_overwrites(tmp_path: Path) -> None:
    assert run("init", cwd=tmp_path).returncode == 0
    plan = run("plan", "study.toml", cwd=tmp_path)
    assert plan.returncode == 0
    assert "updates" in plan.stdout
    again = run("init", cwd=tmp_path)
    assert again.returncode == 2
    assert "--force" in again.stderr
    assert run("init", "--force", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("name", ["qwen3-0.6b", "qwen3-0.6b.toml"])
def test_init_asks_whether_a_preset_was_meant(tmp_path: Path, name: str) -> None:
    answer = run("init", name, cwd=tmp_path)
    assert answer.returncode == 2
    assert "--preset qwen3-0.6b" in answer.stderr
    assert not (tmp_path / name).exists()


def test_init_writes_a_preset_and_names_them_all_when_there_is_no_such(tmp_path: Path) -> None:
    assert run("init", "--preset", "qwen3-0.6b", cwd=tmp_path).returncode == 0
    assert load_study_config(tmp_path / "study.toml").model.path == "Qwen/Qwen3-0.6B"
    other = run("init", "other.toml", "--preset", "gpt-9", cwd=tmp_path)
    assert other.returncode == 2
    assert "qwen3-0.6b" in other.stderr
    assert "llama-3.2-3b" in other.stderr
    assert not (tmp_path / "other.toml").exists()


@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_study_that_does_not_fit_is_refused_with_an_estimate(tmp_path: Path, command: str) -> None:
    (tmp_path / "study.toml").write_text(
        "[trainer]\ngroup_size = 65536\n[resources]\ngpus_per_trial = 0\nworkers = 9"
    )
    answer = run(command, "study.toml", cwd=tmp_path)
    assert answer.returncode == 2
    assert "9 at a time" in answer.stderr
    assert "trainer.micro_batch_groups" in answer.stderr
    assert len(answer.stderr.strip().splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["study.toml"]


def test_a_name_that_is_not_in_the_cache_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text("[model]\npath = 'some/model-that-nobody-has'")
    answer = run("plan", "study.toml", cwd=tmp_path)
    assert answer.returncode == 2
    assert "model.download = true" in answer.stderr


def test_plan_launches_nothing(tmp_path: Path) -> None:
    answer = run("plan", cwd=tmp_path)
    assert answer.returncode == 0
    assert "time at most" in answer.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[sweep]\nsync_intervals = [0]", "sweep.sync_intervals.0 = 0"),
        ("[sweep]\nlearning_rates = [-1.0, 1.0]", "sweep.learning_rates.0 = -1.0"),
        ("[advice]\nhorizon = 0", "advice.horizon = 0"),
        ("[advise]\nhorizon = 10", "unknown key advise"),
        ("[model]\npath = 'no/such/model'", "no/such/model"),
        ("[model]\npath = '.'", "config.json"),
        ("[task]\nname = 'chess'", "task.name"),
        ('[task]\nname = "\\u001b[31mred"', "\\x1b[31mred"),
        ("not toml", "not TOML"),
    ],
)
def test_bad_studies_end_with_one_clear_line(tmp_path: Path, command: str, content: str, words: str) -> None:
    (tmp_path / "study.toml").write_text(content)
    answer = run(command, "study.toml", cwd=tmp_path)
    assert answer.returncode == 2
    assert words in answer.stderr
    assert "Traceback" not in answer.stderr
    assert "\x1b" not in answer.stderr
    assert len(answer.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("missing", "words"),
    [("tokenizer*", "no tokenizer"), ("*.safetensors", "safetensors"), ("config.json", "config.json")],
)
def test_an_incomplete_model_folder_says_what_is_missing(tmp_path: Path, missing: str, words: str) -> None:
    model = Path(shutil.copytree(EMBEDDED_FOLDER, tmp_path / "model"))
    for path in model.glob(missing):
        path.unlink()
    (tmp_path / "study.toml").write_text("[model]\npath = 'model'")
    answer = run("run", "study.toml", cwd=tmp_path)
    assert answer.returncode == 2
    assert words in answer.stderr
    assert len(answer.stderr.strip().splitlines()) == 1


def test_a_file_where_the_study_folder_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    answer = run("run", "--folder", "taken", cwd=tmp_path)
    assert answer.returncode == 5
    assert "a file stands where a folder is wanted" in answer.stderr


@pytest.mark.parametrize("target", ["taken", "no/such/folder/x.toml", "x" * 300 + ".toml"])
def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path, target: str) -> None:
    (tmp_path / "taken").mkdir()
    answer = run("init", target, "--force", cwd=tmp_path)
    assert answer.returncode == 5
    assert "Traceback" not in answer.stderr
    assert len(answer.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("name", ["a\x1b[31m", "a[/b]", "[red]x"])
def test_hostile_folder_names_are_shown_as_text(tmp_path: Path, name: str) -> None:
    study = prepare(
        parse_config(StudyConfig, {"output": {"folder": str(tmp_path / name)}}, source="test"), ""
    )
    answer = run("status", study.root, cwd=tmp_path)
    assert answer.returncode == 0
    assert "\x1b" not in answer.stdout + answer.stderr


def test_a_closed_reader_is_no_error(tmp_path: Path) -> None:
    line = f"{CALIBRATE[0]} plan 2>err | head -1; echo ${{PIPESTATUS[0]}}"
    answer = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=True)  # noqa: S607
    assert answer.stdout.splitlines()[-1] == "0"
    assert (tmp_path / "err").read_text() == ""


def test_broken_weights_are_named_before_anything_is_launched(tmp_path: Path) -> None:
    model = Path(shutil.copytree(EMBEDDED_FOLDER, tmp_path / "model"))
    (model / "model.safetensors").write_bytes(b"torn")
    (tmp_path / "study.toml").write_text("[model]\npath = 'model'")
    answer = run("plan", "study.toml", cwd=tmp_path)
    assert answer.returncode == 2
    assert "no safetensors file" in answer.stderr


def test_unknown_option_is_a_usage_error(tmp_path: Path) -> None:
    answer = run("run", "--max-update", "3", cwd=tmp_path)
    assert answer.returncode == 2
    assert "--max-update" in answer.stderr


@pytest.mark.parametrize("command", ["status", "train --from", "confirm", "compare elsewhere"])
def test_a_folder_that_is_no_study_is_named(tmp_path: Path, command: str) -> None:
    answer = run(*command.split(), tmp_path, cwd=tmp_path)
    assert answer.returncode == 2
    assert "not a study folder" in answer.stderr
