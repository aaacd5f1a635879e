"""Where a command's study comes from: a file, or the embedded default, with the options on top."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import calibrator.study
from calibrator.study.config import StudyConfig, load_study_config, parse_config

STUDY_FILES = Path(calibrator.study.__file__).parent
EMBEDDED_STUDY = STUDY_FILES / "embedded.toml"
TEMPLATE = STUDY_FILES / "template.toml"
PRESETS = STUDY_FILES / "presets"


@dataclass(frozen=True)
class Source:
    config: StudyConfig
    text: str
    """The study file as the user wrote it."""
    name: str


def load_source(
    path: Path | None,
    *,
    folder: Path | None = None,
    max_updates: int | None = None,
    workers: int | None = None,
) -> Source:
    """Parse the study and apply the command's options. Raises StudyConfigError."""
    file = path or EMBEDDED_STUDY
    config = load_study_config(file)
    options: dict[str, dict[str, Any]] = {
        "output": {"folder": str(folder)} if folder else {},
        "sweep": {"max_updates": max_updates} if max_updates else {},
        "resources": {"workers": workers} if workers else {},
    }
    content = config.model_dump()
    for section, values in options.items():
        content[section] |= values
    name = "the embedded default" if path is None else str(path)
    return Source(parse_config(StudyConfig, content, source=name), file.read_text(encoding="utf-8-sig"), name)
