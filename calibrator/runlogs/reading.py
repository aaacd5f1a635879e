"""A log of rows on its way to a Curve: every step of it, and what had to be guessed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from calibrator.errors import LogError
from calibrator.runlogs import names
from calibrator.runlogs.broken import Broken, first_broken, nulls_at_end
from calibrator.runlogs.curve import Curve, Floats, Series
from calibrator.runlogs.formats.source import Source
from calibrator.runlogs.frameworks import FRAMEWORKS, Framework
from calibrator.runlogs.groups import full_marks, with_signal
from calibrator.runlogs.picks import Picks
from calibrator.runlogs.place import MOST_UPDATES, Placement, place, training_rows
from calibrator.runlogs.rates import Logged, rates
from calibrator.runlogs.resumes import settle_resumes
from calibrator.runlogs.series import (
    LONGEST_WITNESSED,
    Observed,
    evaluations,
    nothing,
    observed,
    rollouts,
    spread,
)
from calibrator.runlogs.settings import LogSettings
from calibrator.runlogs.table import Column, LogTable
from calibrator.verdicts.settings import JudgeSettings

LEAST_BATCHES = 4
COARSE = 0.01
"""Printed with three decimals, a smaller number is off by more than a twentieth."""


@dataclass(frozen=True)
class ReadLog:
    """A log, read. `curve.warnings` holds what was repaired or had to be assumed."""

    curve: Curve
    judge: JudgeSettings
    """What the verdict needs beside the curve; its `sync_interval` is S."""
    framework: str
    """What wrote the log: as named, or as guessed."""
    reward_column: str
    max_lag: int | None
    """Largest lag by the settings; None: the log's own before the onset, else S - 1."""
    broken: Broken | None = None
    """The row that was not finite for good."""


class Reading:
    """One log on its way to a curve; what is guessed is noted."""

    def __init__(self, source: Source, settings: LogSettings, name: str, picks: Picks) -> None:
        self.table: LogTable = source.table
        self.source, self.settings, self.name, self.picks = source, settings, name, picks
        self.framework: Framework = FRAMEWORKS[name]
        self.notes = [*source.notes, *picks.notes]
        self.placed: Placement
        self.updates = 0
        self.solved: Floats | None = None

    def read(self) -> ReadLog:
        """The curve and what goes with it."""
        self._place()
        S = self._sync_interval()
        broken = self._broken()
        curve = Curve(
            updates=self.updates,
            learning_rate=self._rates(),
            rewards=self._rewards(S),
            probes=self._probes(),
            others=self._others(S),
            witnesses=self._witnesses(S),
            non_finite_update=broken.begin if broken else None,
        )
        largest = self._largest_lag(curve, S)
        curve = replace(curve, max_lag=largest, warnings=self._warnings())
        judge = JudgeSettings(
            reward_floor=self.settings.reward_floor,
            sync_interval=S,
            full_marks=self._full_marks(curve),
            horizon=self._horizon(),
            series_floors={
                name: self.settings.reward_floor for name in self.picks.testify if name in names.RAW
            },
        )
        return ReadLog(curve, judge, self.name, self.picks.reward, self.settings.max_lag, broken)

    def _full_marks(self, curve: Curve) -> float | None:
        signal = curve.witnesses.get("signal")
        if self.settings.full_marks is not None or signal is None or self.solved is None:
            return self.settings.full_marks
        return full_marks(signal, self.solved, curve.rewards, self.settings.reward_floor)

    def _largest_lag(self, curve: Curve, S: int) -> int | None:
        lags = curve.witnesses.get("lag_max", np.empty(0))
        lags = lags[np.isfinite(lags)]
        largest, told = int(lags.max()) if lags.size else None, self.settings.max_lag
        if told is not None and largest is not None and largest < told:
            self.notes.append(
                f"The largest lag in the log is {largest}; the {told} that were passed are used."
            )
        if (
            self.settings.sync_interval is not None
            and largest is not None
            and largest < min(S, self.updates) - 1
        ):
            self.notes.append(
                f"The largest lag in the log is {largest}, less than S - 1 = {S - 1} of the S passed."
            )
        if told is not None and told < S - 1:
            self.notes.append(f"A largest lag of {told} is less than S - 1 = {S - 1}.")
        return largest

    def _seen(self, name: str) -> Observed:
        return observed(self.table.columns[name], self.placed)

    # --- the axis -----------------------------------------------------------------------------------

    def _place(self) -> None:
        self.placed = place(self.table, self.picks, self.framework, self.settings.updates_per_row)
        self._note_updates_per_row()
        reference = self.picks.reward if not self.picks.evaluated else self.picks.fields.get("grad_norm")
        resumed = settle_resumes(self.placed, self.table, reference or self.picks.reward)
        self.notes += self.placed.notes + resumed
        training = training_rows(self.table, self.picks)
        training[self.table.columns[self.picks.reward].at()] = True
        ends = self.placed.end[training]
        ends = ends[~np.isnan(ends)]
        if not ends.size:
            raise LogError("no row has a step; pass --framework, or number the rows in a column `step`")
        self.updates = int(ends.max())
        if self.updates > MOST_UPDATES:
            raise LogError(f"{self.updates} updates are more than any run makes; is --updates-per-row right?")

    def _note_updates_per_row(self) -> None:
        """What a row was taken for where nobody said it."""
        if self.settings.updates_per_row or self.framework.counts_updates or self._counts_updates():
            return
        apart = self.placed.spacing
        if apart <= 1.0 or self.picks.evaluated:
            taken = "A step" if self.picks.evaluated else "A row"
            self.notes.append(
                f"{taken} is taken as 1 update, which must be passed as --updates-per-row if it is more "
                f"({self.framework.rows_per})."
            )
        else:
            self.notes.append(
                f"Steps rise by {apart:g} a row and each is taken as 1 update, so a row as {apart:g}: pass "
                f"--updates-per-row {apart:g} if that is right, else number the updates in a column `update`."
            )

    def _counts_updates(self) -> bool:
        held = {names.plain(name) for name in self.table.columns}
        return names.UPDATE in held or names.TRAIN_STEP in held

    def _sync_interval(self) -> int:
        if self.settings.sync_interval is not None:
            return self.settings.sync_interval
        unit = self.placed.unit
        if self.framework.sync == "row":
            if unit > 1:
                self.notes.append(
                    f"The sync interval is taken as the {unit} updates of one row ({self.name})."
                )
            return unit
        if self.framework.sync == "unknown":
            asked = f" ({self.framework.interval})" if self.framework.interval else ""
            S = self._batch_interval()
            self.notes.append(
                f"The sync interval is not known and taken as {S}: pass --sync-interval{asked}."
            )
            return S
        return 1

    def _batch_interval(self) -> int:
        """Updates between rewards: one rollout batch serves at least so many, with weights taken before it."""
        if self.name == "slime":
            return self.placed.unit
        rewards = self._seen(self.picks.reward)
        if self.picks.evaluated or rewards.size < LEAST_BATCHES:
            return 1
        apart = float(np.median(np.diff(rewards.end)))
        return round(apart) if apart > 1.5 * self.placed.spacing else 1

    def _horizon(self) -> int | None:
        planned = self.source.last_step
        if self.settings.horizon is not None or planned is None:
            return self.settings.horizon
        horizon = planned * self.placed.unit
        if self.updates < horizon:
            self.notes.append(
                f"The log states {horizon} planned updates: pass --horizon if it was to end elsewhere."
            )
        return horizon if horizon > 0 else None

    # --- series -------------------------------------------------------------------------------------

    def _rewards(self, S: int) -> Series:
        if self.picks.evaluated:
            return nothing(self.picks.reward)
        return rollouts(self.picks.reward, self._seen(self.picks.reward), S)

    def _probes(self) -> Series | None:
        if self.picks.evaluated:
            return evaluations(self.picks.reward, self._seen(self.picks.reward))
        return None

    def _others(self, S: int) -> tuple[Series, ...]:
        found = []
        for name in self.picks.testify:
            seen = self._seen(name)
            found.append(evaluations(name, seen) if names.is_evaluation(name) else rollouts(name, seen, S))
        return tuple(series for series in found if series.value.size)

    def _witnesses(self, S: int) -> dict[str, Floats]:
        if self.updates * max(5, S) > LONGEST_WITNESSED:
            self.notes.append(f"With {self.updates} updates no early warnings are looked for.")
            return {}
        found = {
            field: spread(self._seen(name), self.updates)
            for field, name in self._witness_columns().items()
            if name in self.table.columns
        }
        self.solved = found.get("solved")
        found = with_signal(found)
        if self.source.rounded and "grad_norm" in found and not np.nan_to_num(found["grad_norm"]).any():
            del found["grad_norm"]  # 0.000 in every row may be any small number
        if "off_policy" in found:
            lag = self._in_updates(found.pop("off_policy"), S)
            if lag is not None:
                found.setdefault("lag_max", lag)
        return {name: values for name, values in found.items() if np.isfinite(values).any()}

    def _witness_columns(self) -> dict[str, str]:
        return {
            field: name for field, name in self.picks.fields.items() if field not in ("learning_rate", "loss")
        }

    def _in_updates(self, lag: Floats, S: int) -> Floats | None:
        """A row's largest lag: k versions are at most (k + 1) S - 1 updates."""
        if self.framework.lag_in == "updates":
            return lag
        return (lag + 1.0) * S - 1.0 if self.framework.lag_in == "versions" else None

    # --- rates and what is broken -------------------------------------------------------------------

    def _rates(self) -> Floats:
        name = self.picks.fields.get("learning_rate")
        logged = None
        if name is not None:
            seen = self._seen(name)
            value = seen.value * names.rate_scale(name)[1]
            largest = np.max(seen.value, initial=0.0, where=np.isfinite(seen.value))
            rounded = bool(self.source.rounded and largest < COARSE)
            logged = Logged(name, value, seen.begin, seen.end, rounded, self.framework.averages)
        found, notes = rates(logged, self.settings.learning_rate, self.updates)
        self.notes += notes
        return found

    def _broken(self) -> Broken | None:
        found = []
        for field, name in self._fatal().items():
            broken, skipped = first_broken(
                observed(self._with_nulls(name), self.placed),
                nan_may_be_a_gap=self.source.nan_may_be_a_gap,
                needs_life=field == "grad_norm",
            )
            if broken is not None:
                found.append(broken)
            if skipped and field != "reward":
                self.notes.append(
                    f"{name} was not finite in {skipped} row(s), none of which was its end: these are taken as "
                    "skipped updates."
                )
        return min(found, key=lambda broken: broken.begin, default=None)

    def _fatal(self) -> dict[str, str]:
        """Columns whose end is the end of the run."""
        fields = {field: name for field, name in self.picks.fields.items() if field in ("grad_norm", "loss")}
        return fields if self.picks.evaluated else {**fields, "reward": self.picks.reward}

    def _with_nulls(self, name: str) -> Column:
        """The column with the nulls at its end as NaN, where they stand for that: where loss and gradient agree."""
        tails = {
            held: nulls_at_end(column.at(), np.array(column.nulls, dtype=np.int64))
            for held in self._fatal().values()
            if (column := self.table.columns[held]) is not None and held != self.picks.reward
        }
        column = self.table.columns[name]
        if name not in tails or not all(tail.size for tail in tails.values()):
            return column
        widened = Column(column.rows[:], column.values[:])
        widened.rows.extend(int(row) for row in tails[name])
        widened.values.extend([np.nan] * tails[name].size)
        return widened

    def _warnings(self) -> tuple[str, ...]:
        if self.settings.framework is None:
            known = self.name not in ("csv", "tensorboard", "other")
            taken = f"The log is taken for one of {self.name}" if known else "The framework could not be told"
            self.notes.insert(
                0, f"{taken}: pass --framework {'if it is not' if known else 'with what wrote it'}."
            )
        return tuple(dict.fromkeys(self.notes))
