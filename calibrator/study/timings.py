"""Seconds of a trial, gathered by sync cycle."""

from __future__ import annotations

import json
from pathlib import Path

from calibrator.errors import CorruptStudyError

TIMINGS = "timings.jsonl"
PHASES = ("generate", "score", "learn", "synchronize")


def timing_rows(folder: Path) -> list[dict[str, float]]:
    """Rows of timings.jsonl, one an update; a torn last line is left out."""
    path = folder / TIMINGS
    if not path.is_file():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    try:
        rows = json.loads(b"[" + b",".join(lines) + b"]")  # one call is twice as fast as one a line
    except (ValueError, RecursionError) as error:
        raise CorruptStudyError(f"{path} cannot be read back ({error}); move {folder} away") from error
    if not all(map(_is_timing, rows)):
        raise CorruptStudyError(f"{path} holds a line that is no row of seconds; move {folder} away")
    return list(rows)


def _is_timing(row: object) -> bool:
    return isinstance(row, dict) and all(isinstance(value, int | float) for value in row.values())


def cycles(folder: Path) -> list[dict[str, float]]:
    """Seconds by phase and the `updates` that they cover, one row a sync cycle: rollouts come once a cycle."""
    rows: list[dict[str, float]] = []
    for row in timing_rows(folder):
        if "synchronize" in row or not rows:
            rows.append({"updates": 0.0, **dict.fromkeys(PHASES, 0.0)})
        rows[-1]["updates"] += 1
        for phase in PHASES:
            rows[-1][phase] += row.get(phase, 0.0)
    return rows


def seconds_spent(folder: Path) -> float:
    """Seconds that the trial took, by its rows. What a rollout process did beside the learner is no time of its own."""
    beside = {"update", "start", "load", "generate", "score", "paced"}
    return sum(
        seconds
        for row in timing_rows(folder)
        for name, seconds in row.items()
        if name not in (beside if "wait" in row else {"update"})
    )
