"""Sinks: what reaches them, that a resume repeats nothing, and that whatever they do no run is stopped or held up."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from trainer.config import LogConfig, ProbeConfig, RunConfig, TaskConfig, TrainerConfig
from trainer.loop import sinks
from trainer.loop.sinks import FACTORIES, Background, Start, numbers_of
from trainer.loop.train import train
from trainer.metrics import MetricsRow


def config(**log: Any) -> RunConfig:
    return RunConfig(
        trainer=TrainerConfig(group_size=4, prompts_per_update=2, warmup=2),
        probe=ProbeConfig(every=4, prompts=8),
        task=TaskConfig(held_out=8),
        sync_interval=2,
        updates=4,
        checkpoint_every=2,
        log=LogConfig(**log),
    )


def start(folder: Path, *, update: int = 0, **log: Any) -> Start:
    return Start(config(**log), folder, update, update)


class KilledError(Exception):
    pass


def killed_at_3(seen: Sequence[MetricsRow]) -> bool:
    if len(seen) == 3:
        raise KilledError
    return False


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def tensorboard_series(folder: Path, name: str) -> list[tuple[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def test_tensorboard_holds_every_update_once_after_a_resume(tmp_path: Path) -> None:
    with pytest.raises(KilledError):
        train(config(tensorboard=True), tmp_path, on_row=killed_at_3)
    assert [step for step, _ in tensorboard_series(tmp_path, "loss")] == [0, 1, 2]
    train(config(tensorboard=True), tmp_path)
    rows = metrics(tmp_path)
    assert tensorboard_series(tmp_path, "reward_mean") == [
        (row["update"], pytest.approx(row["reward_mean"], rel=1e-6)) for row in rows
    ]


def wandb_steps(path: Path) -> list[int]:
    """Steps of the rows in an offline file, which holds protobuf records in LevelDB's log format."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, steps = path.read_bytes(), 7, []
    assert len(data) < 32768, "records of more than one block are not read here"
    while at + 7 <= len(data):
        size = int.from_bytes(data[at + 4 : at + 6], "little")
        record = Record()
        record.ParseFromString(data[at + 7 : at + 7 + size])
        if record.WhichOneof("record_type") == "history":
            assert any("loss" in (item.key, *item.nested_key) for item in record.history.item)
            steps.append(record.history.step.num)
        at += 7 + size
    return steps


def in_a_process(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """With its exit: no hook of a library may hold it."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, **environment},
    )


def test_wandb_offline_records_every_update_once_and_calls_nobody(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from trainer.config import RunConfig\nfrom trainer.loop.sinks import Background, Start, Wandb\n"
        "config = RunConfig.model_validate_json(sys.argv[2])\n"
        "for update, logged, end in [(0, 0, 3), (2, 3, 4)]:\n"
        "    sink = Background('wandb', Wandb, Start(config, Path(sys.argv[1]), update, logged))\n"
        "    for u in range(update, end):\n"
        "        sink.log(u, {'loss': 1.0 / (u + 1)})\n"
        "    sink.close()\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        answer = in_a_process(
            code,
            str(tmp_path),
            config(wandb="offline").model_dump_json(),
            WANDB_MODE="online",
            WANDB_API_KEY="x" * 40,
            WANDB_BASE_URL=f"http://127.0.0.1:{server.getsockname()[1]}",
        )
        server.setblocking(False)
        with pytest.raises(BlockingIOError):  # Nobody waits to be let in.
            server.accept()
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")
    files = sorted(tmp_path.glob("wandb/offline-run-*/run-*.wandb"), key=lambda path: path.stat().st_mtime)
    assert [wandb_steps(path) for path in files] == [[0, 1, 2], [3]]
    assert {path.stem for path in files} == {f"run-{(tmp_path / 'run-id').read_text()}"}


def test_trackio_holds_every_update_once_after_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    pytest.importorskip("trackio")
    from trackio.sqlite_storage import SQLiteStorage

    (tmp_path / "run").mkdir()
    for first in (Start(config(), tmp_path / "run", 0, 0), Start(config(), tmp_path / "run", 2, 3)):
        sink = Background("trackio", sinks.Trackio, first)
        for update in range(first.update, 4 if first.update else 3):
            sink.log(update, {"loss": 1.0})
        sink.close()
    (name,) = SQLiteStorage.get_runs("grpo-calibrator")
    assert [row["step"] for row in SQLiteStorage.get_logs("grpo-calibrator", name)] == [0, 1, 2, 3]


def test_online_wandb_without_a_network_ends_in_time(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from trainer.config import RunConfig\nfrom trainer.loop import sinks\n"
        "sinks.START_SECONDS = sinks.CLOSE_SECONDS = 8.0\n"
        "sink = sinks.Background('wandb', sinks.Wandb, sinks.Start("
        "RunConfig.model_validate_json(sys.argv[2]), Path(sys.argv[1]), 0, 0), limit=8.0)\n"
        "sink.log(0, {'loss': 1.0})\nsink.close(limit=8.0)\nprint('went on')\n"
    )
    run = config(wandb="online").model_dump_json()
    answer = in_a_process(
        code, str(tmp_path), run, WANDB_BASE_URL=f"http://127.0.0.1:{port}", WANDB_API_KEY="x" * 40
    )
    assert (answer.returncode, answer.stdout) == (0, "went on\n")
    assert answer.stderr.count("warning: log.wandb is off, the run goes on without it") == 1


def test_a_missing_package_is_one_line_that_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("tensorboard", "trackio", "wandb", "torch.utils.tensorboard"):
        monkeypatch.setitem(sys.modules, name, None)
    for name, factory in FACTORIES.items():
        Background(name, factory, start(tmp_path, wandb="offline")).close()
        said = capsys.readouterr()
        assert said.out == ""
        assert len(said.err.splitlines()) == 1
        assert f"pip install 'grpo-calibrator[{name}]'" in said.err


@pytest.fixture
def forever() -> Iterator[threading.Event]:
    """What hangs in a test, until the test is over."""
    event = threading.Event()
    yield event
    event.set()


class Misbehaving:
    """Raises or hangs at one of its moments."""

    def __init__(self, moment: str, act: Any) -> None:
        self.moment, self.act = moment, act
        self.rows: list[int] = []

    def __call__(self, start: Start) -> Misbehaving:
        self._maybe("start")
        return self

    def log(self, update: int, numbers: Mapping[str, float]) -> None:
        self._maybe("log")
        self.rows.append(update)

    def close(self) -> None:
        self._maybe("close")

    def _maybe(self, moment: str) -> None:
        if moment == self.moment:
            self.act()


@pytest.mark.parametrize("moment", ["start", "log", "close"])
@pytest.mark.parametrize("error", [RuntimeError("no\nspace"), SystemExit(3), KeyboardInterrupt()])
def test_what_a_sink_raises_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], moment: str, error: BaseException
) -> None:
    def act() -> None:
        raise error

    sink = Background("wandb", Misbehaving(moment, act), start(tmp_path))
    for update in range(5):
        sink.log(update, {"loss": 1.0})
    sink.close()
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert f"log.wandb is off, the run goes on without it: {type(error).__name__}" in said


@pytest.mark.parametrize("moment", ["start", "log", "close"])
def test_a_sink_that_hangs_forever_is_left_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], forever: threading.Event, moment: str
) -> None:
    sink = Background("wandb", Misbehaving(moment, forever.wait), start(tmp_path), limit=0.2)
    sink.log(0, {"loss": 1.0})
    sink.close(limit=0.2)
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert ("did not start" if moment == "start" else "did not close") in said


def test_a_sink_that_falls_behind_is_left_behind(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    forever: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sinks, "BACKLOG", 3)
    sink = Background("wandb", Misbehaving("log", forever.wait), start(tmp_path))
    for update in range(10):
        sink.log(update, {"loss": 1.0})
    sink.close()
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert "3 rows behind" in said


def test_a_run_with_broken_sinks_writes_the_same_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def act() -> None:
        raise OSError("disk full")

    moments = {"tensorboard": "start", "trackio": "log", "wandb": "close"}
    for name, moment in moments.items():
        monkeypatch.setitem(FACTORIES, name, Misbehaving(moment, act))
    train(config(tensorboard=True, trackio=True, wandb="offline"), tmp_path / "with")
    assert capsys.readouterr().err.count("disk full") == 3
    train(config(), tmp_path / "without")
    assert (tmp_path / "with/metrics.jsonl").read_bytes() == (tmp_path / "without/metrics.jsonl").read_bytes()


def test_what_a_library_prints_at_its_start_goes_to_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Background("trackio", Misbehaving("start", lambda: print("hello")), start(tmp_path)).close()
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "hello\n")


def test_only_finite_numbers_are_told() -> None:
    row = {"update": 3, "loss": 0.5, "lag_max": 2, "x": float("nan"), "non_finite": ["x"], "flag": True}
    assert numbers_of({**row, "lag_histogram": [[0, 8]]}) == {"loss": 0.5, "lag_max": 2}
