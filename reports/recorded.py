"""What a trial left beside its curve: the staleness probe, how it ended, where its seconds went."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from calibrator.runlogs.curve import Floats
from calibrator.study.timings import timing_rows
from trainer.summary import RunSummary

BESIDE = frozenset({"update", "wait", "paced"})
"""Fields of timings.jsonl that are no seconds of work."""
BIAS = b'"bias_sq"'


@dataclass(frozen=True)
class Bias:
    """Rows with the staleness probe, by update. All arrays have one entry a row."""

    update: Floats
    lag: Floats
    """Updates between the behaviour's version and the learner's; mean over the batch where the lags differ."""
    bias_sq: Floats
    """<d_1, d_2> of docs/probes.md; negative by noise, NaN where it overflowed."""
    full_grad_sq: Floats


@dataclass(frozen=True)
class Recorded:
    """What was found in the folder of a trial."""

    summary: RunSummary | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds by phase, summed over the trial."""
    bias: Bias | None = None
    """None where the probe never ran."""


def read_recorded(folder: Path, summary: RunSummary | None = None) -> Recorded:
    """Everything beside the curve. Raises CorruptStudyError for timings that cannot be read back."""
    return Recorded(summary, _seconds(folder), read_bias(folder / "metrics.jsonl"))


def read_bias(path: Path) -> Bias | None:
    """Rows with the staleness probe; None where there is none. Lines that are no JSON are left out."""
    if not path.is_file():
        return None
    content = path.read_bytes()
    if BIAS not in content:  # most studies never probe: their logs are not parsed twice
        return None
    rows = [row for line in content.split(b"\n") if BIAS in line for row in _row(line)]
    if not rows:
        return None
    columns = ("update", "lag_mean", "bias_sq", "full_grad_sq")
    return Bias(*(np.array([_number(row.get(name)) for row in rows]) for name in columns))


def _row(line: bytes) -> Iterator[dict[str, Any]]:
    try:
        row = json.loads(line)
    except ValueError:
        return
    if isinstance(row, dict):
        yield row


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else float("nan")


def _seconds(folder: Path) -> dict[str, float]:
    spent: dict[str, float] = {}
    for row in timing_rows(folder):
        for phase, seconds in row.items():
            if phase not in BESIDE:
                spent[phase] = spent.get(phase, 0.0) + seconds
    return spent
