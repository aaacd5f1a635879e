"""The length of the intended run in whatever unit its owner counts: updates, response tokens, hours or epochs."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from calibrator.errors import StudyConfigError

Unit = Literal["updates", "tokens", "hours", "epochs"]
UNITS: dict[str, Unit] = {
    "": "updates",
    "update": "updates",
    "updates": "updates",
    "token": "tokens",
    "tokens": "tokens",
    "h": "hours",
    "hour": "hours",
    "hours": "hours",
    "epoch": "epochs",
    "epochs": "epochs",
}
MOST_UPDATES = 10**9
FORM = re.compile(r"\s*([0-9][0-9_]*\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+)\s*([A-Za-z]*)\s*")


@dataclass(frozen=True)
class Horizon:
    """How long the intended run is."""

    amount: float
    unit: Unit = "updates"
    text: str = ""
    """As it was given."""


@dataclass(frozen=True)
class Measured:
    """What an update takes, as far as runs have shown; None where none has."""

    tokens_per_update: float | None = None
    """Response tokens."""
    data_set: int | None = None
    """Prompts that the task trains on before any comes again."""
    prompts_per_update: int | None = None


def parse_horizon(text: str) -> Horizon:
    """`5000`, `5e8tokens`, `48h` or `3epochs`. Raises StudyConfigError saying what can be given."""
    match = FORM.fullmatch(text)
    unit = UNITS.get(match.group(2).lower()) if match else None
    if match is None or unit is None:
        raise StudyConfigError(
            f"--horizon {text}: give updates (5000), response tokens (5e8tokens), hours (48h) or epochs (3epochs)"
        )
    amount = float(match.group(1).replace("_", ""))
    if not 0 < amount < math.inf or (unit == "updates" and amount != int(amount)):
        raise StudyConfigError(f"--horizon {text}: must be finite and above 0, and updates a whole number")
    if unit == "updates" and amount > MOST_UPDATES:
        raise StudyConfigError(f"--horizon {text}: at most {MOST_UPDATES} updates")
    return Horizon(amount, unit, text.strip())


def updates_of(horizon: Horizon, measured: Measured) -> int:
    """T in updates, at least 1. Hours depend on S and are converted interval by interval, not here.

    Raises StudyConfigError saying which measurement is missing.
    """
    if horizon.unit == "updates":
        return int(horizon.amount)
    if horizon.unit == "tokens":
        per_update = _known(measured.tokens_per_update, horizon, "how many response tokens an update has")
        return _whole(horizon.amount / per_update, horizon)
    if horizon.unit == "epochs":
        what = "how many prompts there are to train on (a data set of `jsonl` has a size; other tasks do not end)"
        prompts = _known(measured.data_set, horizon, what)
        per_update = _known(measured.prompts_per_update, horizon, "P, the prompts of an update")
        return _whole(horizon.amount * prompts / per_update, horizon)
    raise StudyConfigError(
        f"--horizon {horizon.text}: seconds per update were never measured; give it in updates"
    )


def updates_within(hours: float, seconds_per_update: float) -> int:
    """Whole updates that fit into `hours`; 0 when not even one does. Raises StudyConfigError beyond MOST_UPDATES."""
    updates = hours * 3600 / seconds_per_update
    if updates > MOST_UPDATES:
        raise StudyConfigError(f"--horizon {hours:g}h: more than {MOST_UPDATES} updates")
    return math.floor(updates)


def _whole(updates: float, horizon: Horizon) -> int:
    if updates > MOST_UPDATES:
        raise StudyConfigError(f"--horizon {horizon.text}: more than {MOST_UPDATES} updates")
    return max(1, round(updates))


def _known(value: float | None, horizon: Horizon, what: str) -> float:
    if value is None:
        raise StudyConfigError(
            f"--horizon {horizon.text}: the runs do not tell {what}; give the horizon in updates"
        )
    return value
