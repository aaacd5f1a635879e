"""The study folder: where everything of a study lies, and whether it may be continued."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout
from pydantic import BaseModel, ValidationError

from calibrator.errors import CorruptStudyError, MachineError, StudyConfigError, StudyMismatchError
from calibrator.nested import changes
from calibrator.study.config import SCHEMA_VERSION, StudyConfig, describe, parse_config, wrong_version
from calibrator.study.provenance import code_digest, task_digest
from trainer.files import disk_errors, write_atomically
from trainer.models import model_digest

CONFIG_FILE, RESOLVED_FILE = "study.toml", "resolved.json"
PACE = "pace"
"""Folder of the runs that time other batches, with `resources.time_batches`."""
NUMBER = re.compile(r"0|[1-9][0-9]*", re.ASCII)
"""Name of a trial's folder: there is one for each number, as `trial` writes it."""


@dataclass(frozen=True)
class StudyFolder:
    """Paths of one study. Nothing is created before `prepare`."""

    root: Path

    @property
    def resolved(self) -> Path:
        return self.root / RESOLVED_FILE

    @property
    def journal(self) -> Path:
        return self.root / "journal.log"

    @property
    def manifest(self) -> Path:
        return self.root / "manifest.json"

    @property
    def cost(self) -> Path:
        return self.root / "cost.json"

    @property
    def fit(self) -> Path:
        return self.root / "fit.json"

    @property
    def recommendation(self) -> Path:
        return self.root / "recommendation.json"

    @property
    def confirmation(self) -> Path:
        return self.root / "confirmation.json"

    @property
    def trainer_toml(self) -> Path:
        return self.root / "trainer.toml"

    def trial(self, number: int) -> Path:
        return self.root / "trials" / str(number)

    def trials(self) -> list[Path]:
        """Folders of all trials, by number. Raises MachineError when they cannot be listed: that is not none."""
        folder = self.root / "trials"
        try:
            names = [name for name in os.listdir(folder) if NUMBER.fullmatch(name)]  # noqa: PTH208 (glob hides errors)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise MachineError(
                f"{folder} cannot be listed ({error.strerror}): the trials lie there; make it one that you may read"
            ) from error
        return [folder / name for name in sorted(names, key=int)]

    def is_locked(self) -> bool:
        """Whether a command works on the study right now."""
        lock = FileLock(self.root / ".lock", timeout=0)
        try:
            with lock:
                return False
        except Timeout:
            return True

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the study for one command. Raises StudyConfigError when another one works on it."""
        with disk_errors(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.root / ".lock", timeout=0)
            try:
                lock.acquire()
            except Timeout:
                raise StudyConfigError(
                    f"{self.root}: another calibrate command is working on this study; wait for it"
                ) from None
            try:
                yield
            finally:
                lock.release()


def is_study(path: Path) -> bool:
    """Whether `path` is the folder of a study that `calibrate run` made."""
    return (path / RESOLVED_FILE).is_file()


def prepare(config: StudyConfig, source: str) -> StudyFolder:
    """Make the study folder of `config`, or check that the one that is there may be continued.

    `source` is the text of the study.toml. Call it with the folder locked. Raises StudyMismatchError naming the
    difference when the trials there were made with another setting, ConfigError when the model is not usable.
    """
    folder = StudyFolder(Path(config.output.folder).expanduser())
    resolved = resolve(config)
    with disk_errors(folder.root):
        if folder.resolved.exists():
            check_unchanged(folder, resolved)
        else:
            _check_empty(folder)
        (folder.root / "trials").mkdir(parents=True, exist_ok=True)
        write_atomically(folder.root / CONFIG_FILE, source)
        write_json(folder.resolved, resolved)
    return folder


def resolve(config: StudyConfig) -> dict[str, Any]:
    """Content of resolved.json: the configuration with all defaults, and digests of what trials depend on."""
    return {
        "schema_version": SCHEMA_VERSION,
        "config": config.model_dump(mode="json"),
        "setting": config.setting(),
        "digests": {
            "model": model_digest(config.model),
            "task": task_digest(config.task),
            "setting": config.setting_digest(),
            "code": code_digest(),
        },
    }


def check_unchanged(folder: StudyFolder, resolved: dict[str, Any]) -> None:
    """Raise StudyMismatchError when the trials in `folder` were made with another setting, model, task or code."""
    before = _read_resolved(folder)
    known = before.get("digests", {})
    found = changes(_filled(before), resolved["setting"])
    differing = [f"{key} was {json.dumps(old)}, is {json.dumps(new)}" for key, old, new in found]
    for name in ("model", "task", "code"):
        if not differing and known.get(name) != resolved["digests"][name]:
            differing.append(f"the {name} itself (digest {known.get(name)} -> {resolved['digests'][name]})")
    if differing:
        raise StudyMismatchError(
            f"{folder.root}: its trials were made with another configuration: {'; '.join(differing)}. "
            "Undo the change, or set output.folder to a new folder"
        )


def open_study(root: Path) -> tuple[StudyFolder, StudyConfig]:
    """A study that `calibrate run` made before. Raises StudyConfigError when `root` is none."""
    folder = StudyFolder(root)
    if not folder.resolved.is_file():
        raise StudyConfigError(
            f"{root} is not a study folder: it has no {RESOLVED_FILE}; `calibrate run` makes one"
        )
    content = _read_resolved(folder)
    return folder, parse_config(StudyConfig, content.get("config", {}), source=str(folder.resolved))


RecordT = TypeVar("RecordT", bound=BaseModel)
ANOTHER = "make the study anew in another folder"
REMAKE = "move it away; `calibrate run` makes it anew"


def read_json(path: Path, *, remedy: str = REMAKE) -> dict[str, Any]:
    """A JSON object of finite numbers; raises CorruptStudyError naming the file and the remedy."""
    if path.exists() and not path.is_file():
        raise CorruptStudyError(f"{path} is no regular file; {remedy}")
    try:
        content = json.loads(path.read_bytes(), parse_constant=_finite, parse_float=_finite)
    except FileNotFoundError:
        raise CorruptStudyError(f"{path} is missing; {remedy}") from None
    except (ValueError, RecursionError) as error:
        raise CorruptStudyError(f"{path} cannot be read back ({error}); {remedy}") from error
    if not isinstance(content, dict):
        raise CorruptStudyError(f"{path} holds no JSON object; {remedy}")
    return content


def read_record(path: Path, model: type[RecordT], *, remedy: str = REMAKE) -> RecordT:
    """A validated record; raises CorruptStudyError naming file, field and remedy."""
    content = read_json(path, remedy=remedy)
    if "schema_version" in model.model_fields:
        _check_version(path, content.get("schema_version", SCHEMA_VERSION), remedy)
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise CorruptStudyError(f"{path}: {describe(error)}; {remedy}") from error


def _read_resolved(folder: StudyFolder) -> dict[str, Any]:
    content = read_json(folder.resolved)
    if "schema_version" not in content:
        raise CorruptStudyError(f"{folder.resolved} has no schema_version; {REMAKE}")
    _check_version(folder.resolved, content["schema_version"], ANOTHER)
    return content


def _finite(text: str) -> float:
    """Python reads NaN, Infinity and 1e999; JSON has none of them, and no record holds one."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number


def write_json(path: Path, content: object) -> None:
    """Machine-written configuration and results are JSON, two spaces deep, one final newline."""
    write_atomically(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def _check_version(path: Path, found: object, remedy: str) -> None:
    if wrong := wrong_version(found):
        joint = ", or" if "install" in wrong else ";"
        raise CorruptStudyError(f"{path}: {wrong}{joint} {remedy}")


def _filled(resolved: dict[str, Any]) -> Any:
    """The setting of an older resolved.json with the defaults of keys that came in since."""

    def over(default: Any, stored: Any) -> Any:
        if not (isinstance(default, dict) and isinstance(stored, dict)):
            return stored
        return {**default, **{key: over(default.get(key), value) for key, value in stored.items()}}

    config = parse_config(StudyConfig, resolved.get("config", {}), source=RESOLVED_FILE)
    return over(config.setting(), resolved.get("setting", {}))


def _check_empty(folder: StudyFolder) -> None:
    """A new study wants an empty folder; one that lost its resolved.json is taken up again, trial by trial."""
    if folder.journal.is_file() or not folder.root.is_dir():
        return
    strangers = sorted(p.name for p in folder.root.glob("[!.]*") if p.name not in (CONFIG_FILE, "trials"))
    if folder.trials() or strangers:
        what = ", ".join(strangers[:3]) or f"trials without {RESOLVED_FILE}"
        raise StudyConfigError(
            f"{folder.root} is not empty and not a study ({what}): choose another output.folder"
        )
