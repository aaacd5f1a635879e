from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from calibrator.errors import CorruptStudyError, MachineError, StudyConfigError, StudyMismatchError
from calibrator.study.config import StudyConfig, parse_config
from calibrator.study.provenance import task_digest
from calibrator.study.store import StudyFolder, open_study, prepare, read_json
from trainer.config import TaskConfig
from trainer.errors import ConfigError, EnvironmentFailedError


def study(folder: Path, **sections: dict[str, object]) -> StudyConfig:
    return parse_config(StudyConfig, {"output": {"folder": str(folder)}, **sections}, source="test")


def test_a_study_may_be_continued_with_another_horizon_but_not_another_trainer(tmp_path: Path) -> None:
    prepare(study(tmp_path / "s"), "")
    prepare(study(tmp_path / "s", advice={"horizon": 800}), "")
    with pytest.raises(StudyMismatchError, match=r"trainer\.epsilon was 0\.2, is 0\.5"):
        prepare(study(tmp_path / "s", trainer={"epsilon": 0.5}), "")


def test_another_model_under_the_same_path_is_noticed(tmp_path: Path) -> None:
    folder = prepare(study(tmp_path / "s"), "")
    content = json.loads(folder.resolved.read_text())
    content["digests"]["model"] = "0" * 16
    folder.resolved.write_text(json.dumps(content))
    with pytest.raises(StudyMismatchError, match="the model itself"):
        prepare(study(tmp_path / "s"), "")


def test_a_folder_with_other_things_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(StudyConfigError, match=r"thesis\.tex"):
        prepare(study(tmp_path), "")


def test_the_users_own_study_file_may_lie_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text("")
    prepare(study(tmp_path), "# mine\n")
    assert (tmp_path / "study.toml").read_text() == "# mine\n"


def test_missing_model_is_named_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no-model"):
        prepare(study(tmp_path / "s", model={"path": str(tmp_path / "no-model")}), "")
    assert not (tmp_path / "s").exists()


def test_two_commands_on_one_study_are_refused(tmp_path: Path) -> None:
    with StudyFolder(tmp_path).locked(), pytest.raises(StudyConfigError, match="another calibrate"):
        StudyFolder(tmp_path).locked().__enter__()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_folder_is_an_environment_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(EnvironmentFailedError, match="permission"), StudyFolder(tmp_path / "s").locked():
        pass


def test_what_is_no_study_and_what_is_broken_is_said(tmp_path: Path) -> None:
    with pytest.raises(StudyConfigError, match="not a study folder"):
        open_study(tmp_path)
    folder = prepare(study(tmp_path / "s"), "")
    folder.resolved.write_text('{"schema_version": 99}')
    with pytest.raises(CorruptStudyError, match="schema version 99"):
        open_study(folder.root)
    folder.resolved.write_text("{torn")
    with pytest.raises(CorruptStudyError, match=r"resolved\.json"):
        read_json(folder.resolved)


def test_an_edited_task_file_is_another_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "edited_task.py").write_text("class Task:\n    reward_floor = 0.0\n")
    before = task_digest(TaskConfig(name="edited_task:Task"))
    (tmp_path / "edited_task.py").write_text("class Task:\n    reward_floor = 1.0\n")
    assert task_digest(TaskConfig(name="edited_task:Task")) != before


def test_a_key_that_came_in_since_counts_as_its_default(tmp_path: Path) -> None:
    """An older resolved.json lacks it, and nobody changed anything."""
    folder = prepare(study(tmp_path / "s"), "")
    content = json.loads(folder.resolved.read_text())
    for part in (content["setting"], content["config"]):
        del part["probe"]["group_size"]
    folder.resolved.write_text(json.dumps(content))
    prepare(study(tmp_path / "s"), "")
    content["setting"]["probe"]["every"] = 99
    folder.resolved.write_text(json.dumps(content))
    with pytest.raises(StudyMismatchError, match=r"probe\.every was 99"):
        prepare(study(tmp_path / "s"), "")


def test_a_trial_has_one_name(tmp_path: Path) -> None:
    for name in ("10", "2", "0", "008", "00", "٣", "²", "-1", "1.old", "2\n"):
        (tmp_path / "trials" / name).mkdir(parents=True)
    assert [path.name for path in StudyFolder(tmp_path).trials()] == ["0", "2", "10"]


def test_trials_that_cannot_be_listed_are_not_none(tmp_path: Path) -> None:
    assert StudyFolder(tmp_path).trials() == []
    (tmp_path / "trials").write_text("")
    with pytest.raises(MachineError, match="trials cannot be listed"):
        StudyFolder(tmp_path).trials()


def test_a_resolved_file_without_version_is_damaged_not_old(tmp_path: Path) -> None:
    folder = prepare(study(tmp_path / "s"), "")
    folder.resolved.write_text("{}")
    with pytest.raises(CorruptStudyError, match="no schema_version; move it away; `calibrate run`"):
        open_study(folder.root)
    folder.resolved.unlink()  # the remedy
    prepare(study(tmp_path / "s"), "")
    assert open_study(folder.root)[0] == folder


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "cost.json")
    with pytest.raises(CorruptStudyError, match="no regular file; move it away"):
        read_json(tmp_path / "cost.json")
