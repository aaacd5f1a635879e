"""Trials as processes: devices, deaths, a user's file that has the name of a package."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from multiprocessing import forkserver
from pathlib import Path

import pytest

from calibrator.errors import CalibratorError, MachineError, StudyConfigError
from calibrator.sweep import executor
from calibrator.sweep.executor import Slots, make_slots, run_all

VERDICT = '{"verdict": "stable"}'


def ignore_ticks(running: object, done: object) -> None:
    pass


def reports_devices(folder: str) -> None:
    seen = {"cuda": os.environ.get("CUDA_VISIBLE_DEVICES"), "pid": os.getpid(), "start": time.monotonic()}
    time.sleep(0.3)
    Path(folder, "seen.json").write_text(json.dumps(seen))
    Path(folder, "verdict.json").write_text(VERDICT)


def imports_trainer(folder: str) -> None:
    import trainer

    Path(folder, "seen.json").write_text(json.dumps(trainer.__file__))
    Path(folder, "verdict.json").write_text(VERDICT)


def leaves_error(folder: str) -> None:
    Path(folder, "error.json").write_text(json.dumps({"message": "the disk is full", "environment": True}))
    os._exit(3)


def leaves_usage_error(folder: str) -> None:
    Path(folder, "error.json").write_text(json.dumps({"message": "bad model", "environment": False}))
    os._exit(3)


def cannot_say(folder: str) -> None:
    os._exit(4)


def says_nothing(folder: str) -> None:
    pass


def dies(folder: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def sleeps(folder: str) -> None:
    Path(folder, "pid").write_text(str(os.getpid()))
    time.sleep(600)


def dies_when_the_other_sleeps(folder: str) -> None:
    if folder.endswith("0"):
        sleeps(folder)
    while not Path(folder).with_name("0").joinpath("pid").exists():
        time.sleep(0.05)
    dies(folder)


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    made = [tmp_path / str(number) for number in range(4)]
    for folder in made:
        folder.mkdir()
    return made


def seen(folder: Path) -> dict[str, object]:
    content: dict[str, object] = json.loads((folder / "seen.json").read_text())
    return content


def test_each_gpu_trial_sees_its_own_devices_only(
    folders: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    slots = make_slots(workers=None, gpus_per_trial=2)
    assert slots.devices == (("4", "5"), ("6", "7"))
    run_all(folders, slots, target=reports_devices, on_tick=ignore_ticks)
    assert {str(seen(folder)["cuda"]) for folder in folders} == {"4,5", "6,7"}
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "4,5,6,7"


def test_a_cpu_trial_sees_no_device(folders: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    slots = make_slots(workers=1, gpus_per_trial=0)
    run_all(folders[:1], slots, target=reports_devices, on_tick=ignore_ticks)
    assert seen(folders[0])["cuda"] == ""


def test_a_server_of_forks_that_somebody_else_started_shows_no_device(
    folders: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    other = multiprocessing.get_context("forkserver").Process(target=says_nothing, args=("",))
    other.start()
    other.join()
    run_all(
        folders[:1], make_slots(workers=1, gpus_per_trial=0), target=reports_devices, on_tick=ignore_ticks
    )
    assert seen(folders[0])["cuda"] == ""


def test_more_gpus_than_there_are_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(StudyConfigError, match="gpus_per_trial"):
        make_slots(workers=None, gpus_per_trial=2)


def test_no_more_trials_at_a_time_than_slots(folders: list[Path]) -> None:
    most = 0

    def watch(running: list[Path], done: object) -> None:
        nonlocal most
        most = max(most, len(running))

    run_all(folders, Slots(((), ())), target=reports_devices, on_tick=watch)  # type: ignore[arg-type]
    assert most <= 2
    assert len({seen(folder)["pid"] for folder in folders}) == 4


def test_finished_trials_are_not_run_again(folders: list[Path]) -> None:
    (folders[0] / "verdict.json").write_text(VERDICT)
    run_all(folders, Slots(((),)), target=reports_devices, on_tick=ignore_ticks)
    assert not (folders[0] / "seen.json").exists()
    assert (folders[1] / "seen.json").exists()


def test_a_users_trainer_py_is_not_imported(
    folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trainer.py").write_text("raise SystemExit('the wrong trainer')")
    monkeypatch.chdir(tmp_path)
    run_all(folders[:1], Slots(((),)), target=imports_trainer, on_tick=ignore_ticks)
    assert str(tmp_path) not in str(seen(folders[0]))


@pytest.mark.parametrize(
    ("target", "kind", "words"),
    [
        (leaves_error, MachineError, "trial 0: the disk is full"),
        (leaves_usage_error, CalibratorError, "trial 0: bad model"),
        (dies, MachineError, "signal 9"),
        (cannot_say, MachineError, "no space left"),
    ],
)
def test_what_a_trial_left_is_said(
    folders: list[Path], target: executor.Callable[[str], None], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        run_all(folders[:1], Slots(((),)), target=target, on_tick=ignore_ticks)


def test_a_trial_that_ends_without_a_verdict_points_to_what_it_printed(folders: list[Path]) -> None:
    with pytest.raises(MachineError, match=r"exit code 0 and no verdict; .*trial\.log"):
        run_all(folders[:1], Slots(((),)), target=says_nothing, on_tick=ignore_ticks)


def test_when_one_trial_dies_the_others_are_ended(folders: list[Path]) -> None:
    with pytest.raises(MachineError):
        run_all(folders[:2], Slots(((), ())), target=dies_when_the_other_sleeps, on_tick=ignore_ticks)
    pid = int((folders[0] / "pid").read_text())
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()
