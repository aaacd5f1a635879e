"""What the live table says of a trial before its first update."""

from __future__ import annotations

from pathlib import Path

from calibrator.cli.live import running_row
from calibrator.runlogs.own import curve_from_rows
from trainer.config import RunConfig


def test_waiting_starting_and_failed_trials_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(RunConfig().model_dump_json())

    def said() -> str:
        return str(running_row(tmp_path, curve_from_rows([]), 0.0)[-1])

    assert said() == "waiting"
    (tmp_path / "trial.log").write_text("")
    assert said() == "starting"
    (tmp_path / "error.json").write_text('{"message": "task.name: \\u001b[31mno", "environment": false}')
    assert said().startswith("failed: task.name: ")
    assert "\x1b" not in said()
