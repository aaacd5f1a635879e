"""What the user says about a log: the options of `calibrate judge`, and of each log in `calibrate fit --settings`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, ValidationError, field_validator

from calibrator.errors import LogError
from calibrator.runlogs.frameworks import ALSO_CALLED, FRAMEWORKS
from calibrator.study.config import describe
from trainer.config import Config

IGNORED = ("what", "expect")
"""Keys of a settings file that describe it to people and to tests."""


def printable(text: str) -> str:
    """Names go into tables, which people look at in terminals: no escapes, no line breaks."""
    if not text.isprintable():
        raise ValueError("only printable characters")
    return text


Printable = Annotated[str, AfterValidator(printable)]


class LogSettings(Config):
    """Fields of a settings file, by the option's name with underscores. Left out: guessed from the log, and said."""

    model_config = ConfigDict(strict=True)

    framework: str | None = None
    """What wrote the log; None: guessed."""
    updates_per_row: Annotated[int, Field(ge=1, le=10**6)] | None = None
    """Optimizer updates that one logged row stands for."""
    sync_interval: Annotated[int, Field(ge=1, le=10**6)] | None = None
    """S, in updates."""
    max_lag: Annotated[int, Field(ge=0, le=10**7)] | None = None
    """Largest lag in updates, where the framework bounds it otherwise than by S - 1; S_eff = 1 + max_lag."""
    reward_column: str | None = None
    learning_rate: Annotated[float, Field(gt=0, le=1e3, allow_inf_nan=False)] | None = None
    """Rate that was applied at every update; it takes the place of what the log says."""
    reward_floor: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    """Reward of a policy that fails always, on the scale of the log."""
    full_marks: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Largest reward of a completion: without it a policy whose groups all score alike may as well be perfect."""
    horizon: Annotated[int, Field(ge=1)] | None = None
    """Planned updates; a log that ends before is one of an interrupted run."""
    run: Annotated[Printable, Field(min_length=1)] | None = None
    """Name of the run; None: the name of the file, or of its folder where the file is named as all are."""
    estimator: Annotated[Printable, Field(min_length=1)] = "unknown"
    seed: Annotated[int, Field(ge=0)] = 0
    strata: dict[Printable, Printable] = Field(default_factory=dict)
    """Further settings that separate strata (model, task, G, ...): columns of RUNS.csv."""

    @field_validator("framework")
    @classmethod
    def _known(cls, name: str | None) -> str | None:
        if name is None:
            return None
        known = name.strip().lower().replace("_", "-")
        known = ALSO_CALLED.get(known, known)
        if known not in FRAMEWORKS:
            raise ValueError(f"take one of {', '.join(FRAMEWORKS)}, or leave it out to have it guessed")
        return known


def settings_of(fields: Mapping[str, Any], *, source: str) -> LogSettings:
    """Settings from the fields of a file or of options; null is as if left out.

    Raises LogError naming `source` and the key.
    """
    try:
        return LogSettings.model_validate(
            {key: value for key, value in fields.items() if key not in IGNORED and value is not None}
        )
    except ValidationError as error:
        raise LogError(f"{source}: {describe(error)}") from error


def read_fields(path: Path) -> dict[str, Any]:
    """The JSON object in a settings file. Raises LogError."""
    if path.exists() and not path.is_file():
        raise LogError(f"{path} is no regular file")
    try:
        fields = json.loads(path.read_bytes())
    except OSError as error:
        raise LogError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise LogError(f"{path} is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise LogError(f"{path} holds no JSON object; give one with the options' names as keys")
    return fields
