"""Seconds per update as a function of the sync interval: content of `cost.json`, measured once and kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from calibrator.errors import CorruptStudyError

Placement = Literal["colocated", "separate"]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]

PARTS = ("generate", "score", "learn")


class CostModel(BaseModel):
    """What an update costs, and the setting in which that was measured."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int = 1
    generate: Seconds
    """Seconds per update to sample its completions."""
    score: Seconds
    """Seconds per update to score them."""
    learn: Seconds
    """Seconds per update of forward, backward and optimizer."""
    synchronize: Seconds
    """Seconds per synchronization, that is every S updates."""
    placement: Placement = "colocated"
    """`colocated`: engine and learner take turns; `separate`: they work at the same time."""
    origin: Literal["measured", "assumed"]
    prompts_per_update: int
    """P at which it was measured."""
    group_size: int
    """G at which it was measured."""
    response_length: float
    """Mean response length in tokens at which it was measured."""

    @model_validator(mode="after")
    def _takes_time(self) -> CostModel:
        if self.generate + self.score + self.learn <= 0:
            raise ValueError("an update that takes no time has no cost: give seconds per update")
        return self

    def seconds_per_update(self, sync_interval: int) -> float:
        """Seconds per update at interval S; scoring counts with generation.

        colocated: generate + score + learn + synchronize/S;
        separate: max(generate + score, learn) + synchronize/S.
        """
        rollout = self.generate + self.score
        busy = rollout + self.learn if self.placement == "colocated" else max(rollout, self.learn)
        return busy + self.synchronize / sync_interval


def cost_from_timings(
    rows: Iterable[Mapping[str, float]],
    *,
    prompts_per_update: int,
    group_size: int,
    response_length: float,
    placement: Placement = "colocated",
) -> CostModel:
    """Cost from rows of `timings.jsonl`, one a cycle, by medians, so that a cold first cycle does not count.

    A row holds seconds under `generate`, `score`, `learn`, `synchronize` and the `updates` that they cover.

    Raises CorruptStudyError when no row covers an update or a row lacks a field.
    """
    cycles = [row for row in rows if row.get("updates", 0) > 0]
    if not cycles:
        raise CorruptStudyError("the timings cover no update: run a trial to measure the cost")
    return CostModel(
        **{part: _median([_field(row, part) / row["updates"] for row in cycles]) for part in PARTS},
        synchronize=_median([_field(row, "synchronize") for row in cycles]),
        placement=placement,
        origin="measured",
        prompts_per_update=prompts_per_update,
        group_size=group_size,
        response_length=response_length,
    )


def _field(row: Mapping[str, float], name: str) -> float:
    if name not in row:
        raise CorruptStudyError(f"a row of the timings lacks `{name}`: delete the file and measure again")
    return row[name]


def _median(seconds: Sequence[float]) -> float:
    """To four digits: more would only be noise in the recommendation."""
    return float(f"{median(seconds):.4g}")
