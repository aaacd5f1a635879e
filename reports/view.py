"""Everything that a report shows, gathered before anything is rendered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from calibrator.advice.cost import CostModel
from calibrator.advice.prediction import ConfirmationRecord
from calibrator.advice.types import Recommendation
from calibrator.laws.posterior import Posterior, log_eta_max
from calibrator.laws.types import Finding, FitResult, Run, StratumFit
from calibrator.runlogs.curve import Curve
from calibrator.verdicts.types import RunVerdict
from reports.numbers import name
from reports.recorded import Recorded

Floats = NDArray[np.float64]
Role = Literal["sweep", "confirmation", "check"]
"""What a run was made for; runs of `calibrate confirm` check an answer and may be unsafe on purpose."""
StratumKey = tuple[str, tuple[tuple[str, str], ...]]


def stratum_key(estimator: str, strata: Mapping[str, str]) -> StratumKey:
    """What separates runs that are never pooled."""
    return estimator, tuple(sorted(strata.items()))


@dataclass(frozen=True)
class RunView:
    """One run with everything that was found out about it."""

    run: Run
    verdict: RunVerdict
    trial: int
    role: Role = "sweep"
    curve: Curve | None = None
    """The log; None when it cannot be read back."""
    recorded: Recorded | None = None
    """What lay beside the log; None for runs that are no trial of a study."""

    @property
    def key(self) -> StratumKey:
        return stratum_key(self.run.estimator, self.run.strata)


@dataclass(frozen=True)
class Band:
    """Fitted stability boundary of one stratum over a grid of effective sync intervals."""

    estimator: str
    strata: Mapping[str, str]
    sync_interval: Floats
    """S_eff, in updates."""
    median: Floats
    """eta_max, LR."""
    low: Floats
    """5 % quantile."""
    high: Floats
    """95 % quantile."""

    @property
    def key(self) -> StratumKey:
        return stratum_key(self.estimator, self.strata)


@dataclass(frozen=True, eq=False)
class StudyView:
    """A study as the reports see it; compared by identity. Refused studies have no recommendation but a `refusal`."""

    title: str
    folder: str
    runs: tuple[RunView, ...]
    fit: FitResult
    bands: tuple[Band, ...] = ()
    recommendation: Recommendation | None = None
    refusal: str | None = None
    """Sentence of the `NothingToSayError`: why nothing is recommended and what to run next."""
    findings: tuple[Finding, ...] = ()
    """Findings beyond those that the fit and the recommendation carry themselves."""
    confirmed: ConfirmationRecord | None = None
    """What `calibrate confirm` predicted and saw at the recommended numbers."""
    cost: CostModel | None = None
    manifest: Mapping[str, object] = field(default_factory=dict)
    """Versions, hardware, seeds, commit, digests, updates and seconds spent; may be nested."""
    setting: Mapping[str, object] = field(default_factory=dict)
    """What trials depend on, from resolved.json; may be nested."""
    unfinished: str | None = None
    """Why this is no last word: the sweep has not ended, or trials came after the recommendation."""
    files: tuple[str, ...] = ()
    """Files written to the study folder, relative to it."""
    next_command: str | None = None
    """Command to run next; by default `calibrate train --from FOLDER` when there is a recommendation."""

    def keys(self) -> list[StratumKey]:
        """Strata in the order of the fit, then those of sweep runs that did not enter it."""
        fitted = [stratum_key(s.estimator, s.strata) for s in self.fit.strata]
        swept = [r.key for r in self.runs if r.role == "sweep"]
        return list(dict.fromkeys([*fitted, *swept]))

    def stratum(self, key: StratumKey) -> StratumFit | None:
        return next((s for s in self.fit.strata if stratum_key(s.estimator, s.strata) == key), None)

    def band(self, key: StratumKey) -> Band | None:
        return next((b for b in self.bands if b.key == key), None)

    def runs_of(self, key: StratumKey) -> list[RunView]:
        """Runs of a stratum; a confirmation at another G or epsilon stands with its estimator's first one."""
        keys = self.keys()
        first = next((k for k in keys if k[0] == key[0]), None)
        return [
            r
            for r in self.runs
            if r.key == key or (r.key not in keys and first == key == (r.run.estimator, key[1]))
        ]

    def label(self, key: StratumKey) -> str:
        """The estimator, with the settings that tell this stratum from the others of the same estimator."""
        same = [dict(k[1]) for k in self.keys() if k[0] == key[0]]
        told = [f"{name(k)} = {name(v)}" for k, v in key[1] if any(other.get(k) != v for other in same)]
        return ", ".join([name(key[0]), *told])

    def recommended_key(self) -> StratumKey | None:
        """The stratum that the recommendation rests on."""
        if self.recommendation is None:
            return None
        wanted = self.recommendation.estimator
        return next((k for k in self.keys() if k[0] == wanted), None)


def sync_grid(intervals: list[int], points: int = 41) -> Floats:
    """Grid of S_eff for a band: geometric, a little beyond the swept intervals on both sides."""
    low, high = min(intervals, default=1), max(intervals, default=1)
    return np.geomspace(max(low / 1.5, 1.0), max(high, 2) * 1.5, points)


def boundary_band(stratum: StratumFit, posterior: Posterior, grid: Floats | None = None) -> Band:
    """Median and 90 % band of eta_max over S_eff; by default around the swept intervals."""
    if grid is None:
        grid = sync_grid([row.sync_interval for row in stratum.eta_max])
    return band_from_draws(stratum, grid, log_eta_max(posterior, grid))


def band_from_draws(stratum: StratumFit, grid: Floats, log_rates: Floats) -> Band:
    """Band from draws of log eta_max with shape (grid points, draws)."""
    low, median, high = np.exp(np.quantile(log_rates, [0.05, 0.5, 0.95], axis=1))
    return Band(stratum.estimator, stratum.strata, grid, median, low, high)
