"""`calibrate replay` on study folders with simulated logs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrator.runlogs.own import read_metrics
from calibrator.study.config import StudyConfig, parse_config
from calibrator.study.store import StudyFolder, prepare, write_json
from calibrator.sweep.judging import trial_settings
from calibrator.sweep.replay import replayed_stop
from calibrator.sweep.rounds import design_space
from calibrator.verdicts.judge import judge
from trainer.metrics import encode_row
from trainer.summary import RunSummary

CALIBRATE = [str(Path(sys.executable).with_name("calibrate"))]
LONGEST, S, PRONE = 320, 4, 10


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CALIBRATE, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False
    )


def log_lines(*, eta: float, dies: int) -> list[str]:
    """Rewards that rise from 0.4 to 0.9 and are next to nothing from version `dies` on."""
    rng = np.random.default_rng(round(eta * 1e6))

    def reward(version: int) -> float:
        level = 0.02 if version >= dies else 0.9 - 0.5 * float(np.exp(-version / 40))
        return float(rng.binomial(128, level)) / 128

    lines = []
    for update in range(LONGEST):
        version = update // S * S
        row = {"update": update, "version": version, "learning_rate": eta, "lag_max": update - version}
        row |= {"reward_mean": reward(version), "reward_se": 0.03}
        if update % 8 == 7:
            row |= {"probe_version": update + 1, "probe_reward": reward(update + 1), "probe_se": 0.03}
        lines.append(encode_row(row) + "\n")
    return lines


def add_trial(
    study: StudyFolder, config: StudyConfig, number: int, *, eta: float, dies: int, go_on: bool
) -> None:
    """A judged trial; it ends where the online rule ends it, unless it is to `go_on`."""
    folder = study.trial(number)
    folder.mkdir(parents=True)
    planned = config.run_config(
        estimator="gmc", sync_interval=S, learning_rate=eta, updates=LONGEST, seed=number
    )
    log, lines = folder / "metrics.jsonl", log_lines(eta=eta, dies=dies)
    log.write_text("".join(lines))
    settings, updates = trial_settings(planned), LONGEST
    stop = replayed_stop(
        read_metrics(log), settings, learning_rate=eta, space=design_space(config, "gmc"), target=None
    )
    if stop is not None and not go_on:
        updates = stop.updates
        log.write_text("".join(lines[:updates]))
    ended = "stopped" if updates < LONGEST else "finished"
    summary = RunSummary(
        updates=updates,
        ended=ended,
        held_out_before=None,
        held_out_after=None,
        lag_bound=S - 1,
        lag_reached=S - 1,
        paced=0,
        discarded_groups=0,
        discarded_length=None,
        discarded_pass_rate=None,
    )
    verdict = judge(read_metrics(log), settings.model_copy(update={"ended": ended}))
    for name, record in (("config", planned), ("summary", summary), ("verdict", verdict)):
        write_json(folder / f"{name}.json", record.model_dump(mode="json"))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> StudyFolder:
    """Prone runs that were ended, all at L = 0.1; a calm one; and one that dies long after that and went on."""
    sweep = {"learning_rates": [2e-4, 8e-3], "sync_intervals": [S], "longest": LONGEST}
    content = {"output": {"folder": str(tmp_path_factory.mktemp("replay") / "s")}, "sweep": sweep}
    config = parse_config(StudyConfig, content, source="test")
    folder = prepare(config, "")
    for number in range(PRONE):
        eta = round(1.5e-3 + 1e-4 * number, 6)
        add_trial(folder, config, number, eta=eta, dies=round(0.1 / eta), go_on=False)
    add_trial(folder, config, PRONE, eta=1e-3, dies=10**6, go_on=True)
    add_trial(folder, config, PRONE + 1, eta=1.1e-3, dies=260, go_on=True)
    return folder


def light_replay(study: StudyFolder) -> Any:
    """What `calibrate replay --json` prints; fails when it imports a heavy package."""
    code = (
        "import sys\nfrom calibrator.cli import main\n"
        f"sys.argv = ['calibrate', 'replay', {str(study.root)!r}, '--json']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('HEAVY', sorted(set(sys.modules) & {'torch', 'transformers', 'vllm'}))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    printed, _, heavy = answer.stdout.rpartition("HEAVY ")
    assert heavy.strip() == "[]"
    return json.loads(printed)


def test_json_tells_what_is_known_what_changed_and_what_is_saved(study: StudyFolder) -> None:
    content = light_replay(study)
    runs = content["runs"]
    assert [entry["trial"] for entry in runs] == list(range(PRONE + 2))
    assert [entry["changed"] for entry in runs] == [None] * PRONE + [False, True]
    assert content["unknown"] == [entry["run"] for entry in runs[:PRONE]]
    assert content["changed"] == [runs[-1]["run"]]
    assert all(entry["stop"] is None and entry["ended_early"] for entry in runs[:PRONE])
    calm, late = runs[-2:]
    assert (calm["verdict"], calm["stop"]["verdict"], calm["stop"]["rule"]) == ("stable", "stable", "settled")
    assert (late["verdict"], late["stop"]["verdict"]) == ("collapsed", "stable")
    assert content["saved"] == sum(LONGEST - entry["stop"]["updates"] for entry in (calm, late))
    assert content["updates"] == sum(entry["updates"] for entry in runs)
    assert 0.1 < content["stopping_cumulative_lr"]["gmc"] < 0.26


def test_text_says_the_same_and_fits_a_plain_terminal(study: StudyFolder) -> None:
    answer = run("replay", study.root)
    assert answer.returncode == 0, answer.stderr
    assert "changed 1 verdict: gmc-S4-eta0.0011-11." in answer.stdout
    assert "10 runs were ended early" in answer.stdout
    assert "unknown" in answer.stdout
    table = [line for line in answer.stdout.splitlines() if line.startswith("  gmc")]
    assert len(table) == PRONE + 2
    assert max(map(len, table)) <= 80
    assert answer.stderr == ""


def test_a_study_without_finished_trial_is_inconclusive(tmp_path: Path) -> None:
    content = {"output": {"folder": str(tmp_path / "s")}}
    prepare(parse_config(StudyConfig, content, source="test"), "")
    answer = run("replay", tmp_path / "s")
    assert answer.returncode == 3
    assert "no finished trial" in answer.stderr


def test_no_study_and_a_broken_log_are_one_clear_line(study: StudyFolder, tmp_path: Path) -> None:
    answer = run("replay", tmp_path / "nowhere")
    assert answer.returncode == 2
    assert "not a study folder" in answer.stderr
    copy = StudyFolder(shutil.copytree(study.root, tmp_path / "copy"))
    (copy.trial(4) / "metrics.jsonl").write_text("{}\nnothing\n{}\n")
    broken = run("replay", copy.root, "--json")
    assert broken.returncode == 2
    assert "trials/4/metrics.jsonl" in broken.stderr
    assert len(broken.stderr.strip().splitlines()) == 1
