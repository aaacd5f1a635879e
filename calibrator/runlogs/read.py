"""From the log of any framework to a Curve, with everything said that had to be guessed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from calibrator.runlogs.curve import Curve
from calibrator.runlogs.settings import LogSettings
from calibrator.verdicts.settings import JudgeSettings


@dataclass(frozen=True)
class ReadLog:
    """A log, read. `curve.warnings` holds what was repaired or had to be assumed."""

    curve: Curve
    judge: JudgeSettings
    """What the verdict needs beside the curve; its `sync_interval` is S."""
    framework: str
    """What wrote the log: as named, or as guessed."""
    reward_column: str
    max_lag: int | None
    """Largest lag by the settings or by what the framework enforces; None: the log's own, else S - 1."""


def read_log(path: Path, settings: LogSettings) -> ReadLog:
    """Read one log: a file of any format that is known, or a folder of TensorBoard event files.

    Raises LogError when the log cannot be read or understood; the text says what to pass.
    """
    raise NotImplementedError
