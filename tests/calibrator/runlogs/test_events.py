"""TensorBoard event files: one file, a folder of them, resumed, torn, and without the library."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from calibrator.errors import LogError
from calibrator.runlogs.judged import JudgedLog, judge_log
from calibrator.runlogs.settings import settings_of

DEATH, ROWS = 120, 200
Course = Callable[..., list[float]]


def write(folder: Path, steps: Iterable[tuple[int, dict[str, float]]], name: str = "1") -> Path:
    """An event file as SummaryWriter makes it, scalar by scalar. Returns it."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    folder.mkdir(exist_ok=True)
    path = folder / f"events.out.tfevents.{name}"
    with path.open("wb") as file:
        records = RecordWriter(file)
        records.write(Event(wall_time=1.0, file_version="brain.Event:2").SerializeToString())
        for step, scalars in steps:
            for tag, value in scalars.items():
                summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
                records.write(Event(wall_time=2.0 + step, step=step, summary=summary).SerializeToString())
    return path


def judged(path: Path, **fields: object) -> JudgedLog:
    return judge_log(path, settings_of({"sync_interval": 1, **fields}, source="test"))


def verl(rewards: list[float], start: int = 0) -> list[tuple[int, dict[str, float]]]:
    return [
        (start + i + 1, {"critic/rewards/mean": reward, "actor/lr": 1e-6, "actor/grad_norm": 0.2})
        for i, reward in enumerate(rewards)
    ]


@pytest.mark.parametrize("whole", [True, False])
def test_a_folder_and_a_file(tmp_path: Path, course: Course, whole: bool) -> None:
    file = write(tmp_path / "tb", verl(course(dead_from=DEATH)))
    found = judged(tmp_path / "tb" if whole else file, framework="verl", updates_per_row=1)
    assert (found.verdict.verdict, found.verdict.updates) == ("collapsed", ROWS)
    assert found.verdict.cumulative_lr_total == pytest.approx(ROWS * 1e-6, rel=1e-6)  # single precision


def test_a_resumed_run_has_two_files(tmp_path: Path, course: Course) -> None:
    write(tmp_path / "tb", verl(course(182)), "1")
    write(tmp_path / "tb", verl(course(seed=1)[150:], start=150), "2")
    found = judged(tmp_path / "tb")
    assert found.verdict.updates == ROWS
    assert any("went back to update 150" in warning for warning in found.verdict.warnings)


def test_two_axes_of_slime(tmp_path: Path, course: Course) -> None:
    steps = []
    for i, reward in enumerate(course(dead_from=DEATH)):
        steps.append((i, {"rollout/raw_reward": reward, "rollout/step": i}))
        steps += [
            (4 * i + j, {"train/lr-pg_0": 1e-6, "train/loss": 0.0, "train/step": 4 * i + j}) for j in range(4)
        ]
    write(tmp_path / "tb", steps)
    found = judged(tmp_path / "tb", sync_interval=4)
    assert (found.log.framework, found.verdict.updates) == ("slime", 4 * ROWS)
    assert found.verdict.cumulative_lr_total == pytest.approx(4 * ROWS * 1e-6, rel=1e-6)


def test_torn_and_damaged_files(tmp_path: Path, course: Course) -> None:
    file = write(tmp_path / "tb", verl(course()))
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    assert 80 < judged(file).verdict.updates < 120
    file.write_bytes(b"garbage" * 99)
    with pytest.raises(LogError, match="no scalars could be read"):
        judged(file)


def test_several_runs_are_a_choice(tmp_path: Path, course: Course) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, verl(course()))
    with pytest.raises(LogError, match="holds several logs"):
        judged(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(LogError, match="holds no log that is known"):
        judged(tmp_path / "empty")


def test_without_the_library_it_says_what_to_install(
    tmp_path: Path, course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "tb", verl(course()))
    monkeypatch.setitem(sys.modules, "tensorboard.backend.event_processing.event_file_loader", None)
    with pytest.raises(LogError, match=r"grpo-calibrator\[tensorboard\]"):
        judged(file)


def test_metrics_win_over_what_was_sent_to_tensorboard(tmp_path: Path, course: Course) -> None:
    write(tmp_path / "tensorboard", verl(course(50)))
    rows = [{"step": i, "reward": reward} for i, reward in enumerate(course(80))]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert judged(tmp_path).verdict.updates == 80
