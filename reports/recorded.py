"""What a trial left beside its curve: the staleness probe, how it ended, where its seconds went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from calibrator.runlogs.curve import Curve, Floats
from calibrator.study.timings import timing_rows
from trainer.summary import RunSummary

BESIDE = frozenset({"update", "wait", "paced"})
"""Fields of timings.jsonl that are no seconds of work."""


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


def recorded_in(folder: Path, curve: Curve | None, summary: RunSummary | None = None) -> Recorded:
    """What lies in the folder beside the curve. Raises CorruptStudyError for timings that cannot be read back."""
    return Recorded(summary, _seconds(folder), None if curve is None else bias_of(curve))


def bias_of(curve: Curve) -> Bias | None:
    """Rows with the staleness probe; None where there is none."""
    if not {"lag_mean", "bias_sq", "full_grad_sq"} <= curve.witnesses.keys():
        return None
    lag, bias, full = (curve.witnesses[name] for name in ("lag_mean", "bias_sq", "full_grad_sq"))
    probed = np.flatnonzero(np.isfinite(lag) & (np.isfinite(bias) | np.isfinite(full)))
    return Bias(probed.astype(np.float64), lag[probed], bias[probed], full[probed])


def _seconds(folder: Path) -> dict[str, float]:
    spent: dict[str, float] = {}
    for row in timing_rows(folder):
        for phase, seconds in row.items():
            if phase not in BESIDE:
                spent[phase] = spent.get(phase, 0.0) + seconds
    return spent
