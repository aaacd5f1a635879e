"""What a trial left beside its curve: the staleness probe, how it ended, where its seconds went."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from calibrator.runlogs.curve import Floats
from calibrator.study.timings import TIMINGS, is_timing, timing_rows
from trainer.summary import RunSummary

BESIDE = frozenset({"update", "wait", "paced"})
"""Fields of timings.jsonl that are no seconds of work."""
BIAS = b'"bias_sq"'
FIELDS = tuple(
    re.compile(rb'"%s":\s*(null|-?[\d.eE+-]+)[,}]' % name)
    for name in (b"update", b"lag_mean", b"bias_sq", b"full_grad_sq")
)


@dataclass(frozen=True)
class Bias:
    """Rows with the staleness probe, by update. All arrays have one entry a row."""

    update: Floats
    lag: Floats
    """Updates between the behaviour's version and the learner's; mean over the batch where the lags differ."""
    bias_sq: Floats
    """<d_1, d_2> of docs/probes.md; negative by noise, NaN where it overflowed."""
    full_grad_sq: Floats

    def until(self, update: float) -> Bias:
        """The rows before `update`."""
        keep = self.update < update
        return Bias(self.update[keep], self.lag[keep], self.bias_sq[keep], self.full_grad_sq[keep])


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
    """Rows with the staleness probe; None where there is none. Lines without all four fields are left out."""
    if not path.is_file():
        return None
    content = path.read_bytes()
    if BIAS not in content:  # most studies never probe: their logs are not parsed twice
        return None
    rows = [
        found for line in content.split(b"\n") if BIAS in line and len(found := _fields(line)) == len(FIELDS)
    ]
    return Bias(*np.array(rows).T) if rows else None


def _fields(line: bytes) -> list[float]:
    """The four fields of a row; null is NaN. To find four of thirty is several times faster than to parse all."""
    found = (pattern.search(line) for pattern in FIELDS)
    return [math.nan if match[1] == b"null" else float(match[1]) for match in found if match]


def _timings(folder: Path) -> Iterable[dict[str, float]]:
    """Rows of timings.jsonl: in one call where the file is whole, which is twice as fast."""
    path = folder / TIMINGS
    try:
        rows: list[dict[str, float]] = json.loads(
            b"[" + path.read_bytes().rstrip(b"\n").replace(b"\n", b",") + b"]"
        )
    except (OSError, ValueError, RecursionError):
        return timing_rows(folder)
    return rows if all(map(is_timing, rows)) else timing_rows(folder)


def _seconds(folder: Path) -> dict[str, float]:
    spent: dict[str, float] = {}
    for row in _timings(folder):
        for phase, seconds in row.items():
            if phase not in BESIDE:
                spent[phase] = spent.get(phase, 0.0) + seconds
    return spent
