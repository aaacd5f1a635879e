"""Seconds per update as a function of the sync interval: content of `cost.json`, measured once and kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from calibrator.errors import CorruptStudyError, NothingToSayError

Placement = Literal["colocated", "separate"]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]

PARTS = ("generate", "score", "learn")


class TimedCycles(NamedTuple):
    """Rows of `timings.jsonl`, one a cycle, of updates with P G = `batch` trajectories."""

    batch: int
    cycles: Sequence[Mapping[str, float]]


class CostTerms(BaseModel):
    """Seconds that do not depend on how many trajectories there are, and seconds of each trajectory."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    generate_call: Seconds
    """Of a call of the engine, which draws a whole cycle of S P G trajectories at once."""
    generate_row: Seconds
    """Of one trajectory more in such a call."""
    score_row: Seconds
    learn_update: Seconds
    """Of an update, whatever its batch."""
    learn_row: Seconds
    batches: tuple[int, ...]
    """Sizes of a batch, P G, at which `learn` was timed: one alone leaves `learn_update` at 0."""

    def rollout(self, sync_interval: int, batch: int) -> float:
        """Seconds per update to generate and score batches of P G trajectories, S of them in a call."""
        return self.generate_call / sync_interval + batch * (self.generate_row + self.score_row)

    def learn(self, batch: int) -> float:
        """Seconds per update to learn from P G trajectories."""
        return self.learn_update + batch * self.learn_row


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
    terms: CostTerms | None = None
    """How generating and learning depend on S, P and G; null where only one kind of update was ever timed."""

    @model_validator(mode="after")
    def _takes_time(self) -> CostModel:
        if self.generate + self.score + self.learn <= 0:
            raise ValueError("an update that takes no time has no cost: give seconds per update")
        return self

    def seconds_per_update(self, sync_interval: int) -> float:
        """Seconds per update at interval S and the measured P and G; scoring counts with generation.

        colocated: generate + score + learn + synchronize/S;
        separate: max(generate + score, learn) + synchronize/S.
        """
        if self.terms is not None:
            return self.seconds_at(sync_interval, self.prompts_per_update, self.group_size)
        return self._together(self.generate + self.score, self.learn, sync_interval)

    def seconds_at(self, sync_interval: int, prompts_per_update: int, group_size: int) -> float:
        """Seconds per update at (S, P, G), for responses of the measured length. [derived from measured terms]

        Raises NothingToSayError for another P G when batches of one size only were timed.
        """
        batch = prompts_per_update * group_size
        own = batch == self.prompts_per_update * self.group_size
        if self.terms is None or (len(self.terms.batches) < 2 and not own):
            if own:
                return self.seconds_per_update(sync_interval)
            raise NothingToSayError(
                f"updates of {batch} trajectories were never timed, nor others than those of "
                f"{self.prompts_per_update * self.group_size}: time a short run with another P or G"
            )
        rollout, learn = self.terms.rollout(sync_interval, batch), self.terms.learn(batch)
        return self._together(rollout, learn, sync_interval)

    def _together(self, rollout: float, learn: float, sync_interval: int) -> float:
        busy = rollout + learn if self.placement == "colocated" else max(rollout, learn)
        return busy + self.synchronize / sync_interval


def cost_from_timings(
    rows: Iterable[Mapping[str, float]],
    *,
    prompts_per_update: int,
    group_size: int,
    response_length: float,
    placement: Placement = "colocated",
    others: Sequence[TimedCycles] = (),
) -> CostModel:
    """Cost from rows of `timings.jsonl`, one a cycle, by medians, so that a cold first cycle does not count.

    A row holds seconds under `generate`, `score`, `learn`, `synchronize` and the `updates` that they cover. `others`
    are cycles with batches of other sizes.

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
        terms=cost_terms([TimedCycles(prompts_per_update * group_size, cycles), *others]),
    )


def cost_terms(timed: Sequence[TimedCycles]) -> CostTerms | None:
    """Fixed and per-trajectory seconds, least squares of relative errors over medians of equal cycles.

    None where all calls of the engine were of one size: nothing then separates the two.
    """
    drawn = _medians(timed, lambda batch, row: (batch * int(row["updates"]), _field(row, "generate")))
    scored = _medians(timed, lambda batch, row: (batch * int(row["updates"]), _field(row, "score")))
    learned = _medians(timed, lambda batch, row: (batch, _field(row, "learn") / row["updates"]))
    if len(drawn) < 2:
        return None
    generate_call, generate_row = _line(drawn)
    learn_update, learn_row = _line(learned)
    return CostTerms(
        generate_call=generate_call,
        generate_row=generate_row,
        score_row=_digits(median(seconds / rows for rows, seconds in scored.items())),
        learn_update=learn_update,
        learn_row=learn_row,
        batches=tuple(sorted(learned)),
    )


def _medians(
    timed: Sequence[TimedCycles], point: Callable[[int, Mapping[str, float]], tuple[int, float]]
) -> dict[int, float]:
    """Median seconds by number of trajectories."""
    found: dict[int, list[float]] = {}
    for batch, cycles in timed:
        for row in cycles:
            if row.get("updates", 0) > 0:
                rows, seconds = point(batch, row)
                found.setdefault(rows, []).append(seconds)
    return {rows: median(seconds) for rows, seconds in found.items()}


def _line(points: Mapping[int, float]) -> tuple[float, float]:
    """a, b >= 0 of seconds = a + b rows; a = 0 for a single point."""
    rows, seconds = np.array(list(points), dtype=np.float64), np.array(list(points.values()))
    positive = seconds > 0
    rows, seconds = rows[positive], seconds[positive]
    if not rows.size:
        return 0.0, 0.0
    design = np.column_stack([1 / seconds, rows / seconds])
    a, b = np.linalg.lstsq(design, np.ones(rows.size), rcond=None)[0] if rows.size > 1 else (-1.0, 0.0)
    if a < 0:
        share = rows / seconds
        a, b = 0.0, float(share.sum() / (share @ share))
    elif b < 0:
        share = 1 / seconds
        a, b = float(share.sum() / (share @ share)), 0.0
    return _digits(a), _digits(b)


def _field(row: Mapping[str, float], name: str) -> float:
    if name not in row:
        raise CorruptStudyError(f"a row of the timings lacks `{name}`: delete the file and measure again")
    return row[name]


def _median(seconds: Sequence[float]) -> float:
    return _digits(median(seconds))


def _digits(seconds: float) -> float:
    """To four digits: more would only be noise in the recommendation."""
    return float(f"{seconds:.4g}")
