"""What can be said of the largest safe eta where there is no boundary to recommend from."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from calibrator.laws.fitted import FittedStratum
from calibrator.laws.types import Estimate, SeenPair


class UpperBound(BaseModel):
    """The smallest tested rate at one interval at which every run collapsed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sync_interval: int
    learning_rate: float
    """The boundary, where half of the runs are prone, is expected below this rate."""
    collapse_probability: Estimate
    """Of a run there, from its own runs alone."""


class Refused(BaseModel):
    """Beside the sentence that refuses: P(collapse by the L that was watched) at each tested point, and bounds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tested: list[SeenPair]
    upper_bounds: list[UpperBound]
    """Empty where no rate was fatal: nothing then bounds C or the boundary."""


def refused(fitted: FittedStratum) -> Refused:
    """Content of `tested` and `upper_bounds` of a refusal."""
    tested = fitted.summary.tested
    return Refused(tested=tested, upper_bounds=upper_bounds(tested))


def upper_bounds(tested: Sequence[SeenPair]) -> list[UpperBound]:
    """For each interval, ascending, its smallest rate at which all runs collapsed while none above survived."""
    found = []
    for interval in sorted({pair.sync_interval for pair in tested}):
        pairs = sorted(
            (p for p in tested if p.sync_interval == interval), key=lambda p: p.learning_rate, reverse=True
        )
        fatal = None
        for pair in pairs:
            if pair.collapsed < pair.runs:
                break
            fatal = pair
        if fatal is not None:
            found.append(
                UpperBound(
                    sync_interval=interval,
                    learning_rate=fatal.learning_rate,
                    collapse_probability=fatal.collapse_probability,
                )
            )
    return found


def bounds_sentence(bounds: Sequence[UpperBound]) -> str:
    """Sentence for people; empty without a bound."""
    if not bounds:
        return ""
    listed = ", ".join(
        f"{bound.learning_rate:.3g} at S = {bound.sync_interval} (P(collapse) there above "
        f"{bound.collapse_probability.low:.2g})"
        for bound in bounds
    )
    return f"Upper bounds of the largest stable eta, from points where every run collapsed: {listed}."
