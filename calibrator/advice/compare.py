"""Two studies side by side: which of their laws differ by more than their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from calibrator.advice.types import Recommendation
from calibrator.laws.evidence import realised_intervals
from calibrator.laws.fitted import FittedStratum
from calibrator.laws.observations import is_used
from calibrator.laws.posterior import CEILING, Floats, interval, log_eta_max, rounded
from calibrator.laws.types import Estimate
from calibrator.nested import changes

ENOUGH_DRAWS = 200
"""Draws of the ceiling boundary in both posteriors from which its C is compared."""

Quantity = Literal["eta_max", "C", "B"]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Side(_Record):
    """One of the two studies."""

    name: str
    estimator: str
    verdicts: dict[str, int]
    """Finished runs of this estimator by verdict."""
    runs_in_fit: int
    events: int
    boundary: str | None
    """The boundary that the runs prefer; null where they identify none."""
    recommendation: Recommendation | None
    refusal: str | None
    """Why there is no recommendation."""


class Difference(_Record):
    """A key that the two do not share; null where it is absent."""

    key: str
    first: Any
    second: Any


class Contrast(_Record):
    """One quantity of the laws in both studies."""

    quantity: Quantity
    """eta_max at one S; C of the ceiling boundary, LR x updates; B, LR x updates."""
    sync_interval: int | None = None
    first: Estimate
    second: Estimate
    ratio: Estimate
    """Second over first."""
    first_larger: float
    """Posterior probability that it is larger in the first study."""
    differs: bool
    """Whether the 90 % interval of the ratio leaves out 1."""


class Comparison(_Record):
    """What `calibrate compare` says."""

    schema_version: int = 1
    first: Side
    second: Side
    settings: list[Difference]
    """What trials depend on, and the question."""
    made_with: list[Difference]
    """Versions, hardware, code."""
    contrasts: list[Contrast]
    """Empty where one of the studies identifies no boundary."""


def contrasts(first: FittedStratum, second: FittedStratum) -> list[Contrast]:
    """Boundary at each common S, C and B. Both posteriors are taken as independent, as those of separate runs are."""
    a, b = first.posterior, second.posterior
    if a is None or b is None:
        return []
    intervals = common_intervals(first, second)
    found = [
        contrast("eta_max", log_eta_max(a, at[0]), log_eta_max(b, at[1]), sync_interval=S)
        for S, at in intervals.items()
    ]
    bent = a.log_C[a.boundary == CEILING], b.log_C[b.boundary == CEILING]
    if min(part.size for part in bent) >= ENOUGH_DRAWS:
        found.append(contrast("C", *bent))
    return [*found, contrast("B", a.log_B, b.log_B)]


def contrast(
    quantity: Quantity, log_first: Floats, log_second: Floats, *, sync_interval: int | None = None
) -> Contrast:
    """Compare draws [D] and [E] of a logarithm; the two sets are independent, so every pair is as good."""
    below = np.searchsorted(np.sort(log_second), log_first, side="left")
    ratio = interval(np.exp(log_ratios(log_first, log_second)))
    return Contrast(
        quantity=quantity,
        sync_interval=sync_interval,
        first=interval(np.exp(log_first)),
        second=interval(np.exp(log_second)),
        ratio=ratio,
        first_larger=rounded(float(np.mean(below)) / log_second.size),
        differs=not ratio.low <= 1 <= ratio.high,
    )


def log_ratios(log_first: Floats, log_second: Floats) -> Floats:
    """log(second / first) of draws paired at random: they come sorted by boundary, and the order means nothing."""
    rng, size = np.random.default_rng(0), max(log_first.size, log_second.size)
    pairs = [np.resize(rng.permutation(part), size) for part in (log_first, log_second)]
    return np.asarray(pairs[1] - pairs[0], dtype=np.float64)


def common_intervals(first: FittedStratum, second: FittedStratum) -> dict[int, tuple[int, int]]:
    """For each S that both studies tested, ascending, the S_eff that each realised."""
    a, b = (realised_intervals([r for r in each.runs if is_used(r)]) for each in (first, second))
    return {S: (a[S], b[S]) for S in a if S in b}


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Difference]:
    """Dotted keys whose values differ, in the order of the first."""
    return [Difference(key=key, first=a, second=b) for key, a, b in changes(first, second)]


def tally(verdicts: Sequence[str]) -> dict[str, int]:
    """Counts by name, most frequent first, then by name."""
    counts = {verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))}
    return dict(sorted(counts.items(), key=lambda item: -item[1]))
