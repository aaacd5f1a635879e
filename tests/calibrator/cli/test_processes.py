"""`calibrate train --processes`: the whole command with two processes, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from multiprocessing import active_children
from pathlib import Path

import pytest
from typer.testing import Result

RUN = """
learning_rate = 1e-3
updates = 8
sync_interval = 4
checkpoint_every = 4
[trainer]
group_size = 4
prompts_per_update = 2
warmup = 2
[probe]
every = 4
prompts = 16
[model]
path = "embedded"
[task]
name = "running-sum"
held_out = 16
"""


@pytest.mark.slow
def test_two_processes_make_a_run_with_its_verdict_and_policy(
    tmp_path: Path, calibrate: Callable[..., Result]
) -> None:
    (tmp_path / "run.toml").write_text(RUN)
    answer = calibrate(
        "train", "--from", str(tmp_path / "run.toml"), "--out", str(tmp_path / "run"), "--processes", "2"
    )
    assert answer.exit_code in (0, 3), answer.stderr
    assert "verdict" in answer.stdout
    rows = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["update"] for row in rows] == list(range(8))
    assert (tmp_path / "run/policy/model.safetensors").is_file()
    assert not active_children()


def test_no_process_is_no_number_of_processes(tmp_path: Path, calibrate: Callable[..., Result]) -> None:
    (tmp_path / "run.toml").write_text(RUN)
    answer = calibrate(
        "train", "--from", str(tmp_path / "run.toml"), "--out", str(tmp_path / "run"), "--processes", "0"
    )
    assert answer.exit_code == 2
    assert "--processes" in answer.stderr
