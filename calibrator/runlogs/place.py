"""Where the rows of a log lie on the axis of updates."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from calibrator.errors import LogError
from calibrator.runlogs import names
from calibrator.runlogs.curve import Floats
from calibrator.runlogs.frameworks import Framework
from calibrator.runlogs.picks import Picks
from calibrator.runlogs.table import LogTable

SPARSEST = 1000
"""Updates a row, beyond which a step counts something else: samples, tokens, episodes."""
SAMPLES = 32
"""Steps from row to row, from which they may count samples: few frameworks log so rarely, and batches are as large."""
MOST_UPDATES = 40_000_000
RESTARTED_ROWS = 32
"""Rows before a new start from which they are a run of their own, not a false start."""
TWO_RUNS = (
    "the log starts again from its beginning after {rows} rows: two runs in one file? Split it there and give each run "
    "its own file"
)
MOST_GAPS = 0.5
"""Share of rows that may lack their step and be placed by their neighbours."""


@dataclass
class Placement:
    """Arrays over rows, NaN where a row has no place: it stands for updates [begin, end).

    `version` is the number of updates that the learner had made at a row's evaluations.
    """

    begin: Floats
    end: Floats
    version: Floats
    unit: int
    """Updates of one step."""
    spacing: float = 1.0
    """Updates from row to row."""
    notes: list[str] = field(default_factory=list)
    by_order: bool = False
    """Whether the rows were merely counted, so that equal rows are different updates."""

    def drop(self, rows: np.ndarray) -> None:
        """Take the place of rows that do not count."""
        for part in (self.begin, self.end, self.version):
            part[rows] = np.nan


def training_rows(table: LogTable, picks: Picks) -> np.ndarray:
    """Which rows are of training: they hold a reward of rollouts, a gradient norm or a loss. Empty mask: none is."""
    wanted = [picks.fields.get("grad_norm"), picks.fields.get("loss")]
    if not picks.evaluated:
        wanted.append(picks.reward)
    mask = np.zeros(table.rows, dtype=bool)
    for name in wanted:
        if name is not None:
            mask[table.columns[name].at()] = True
    return mask


def place(table: LogTable, picks: Picks, framework: Framework, updates_per_row: int | None) -> Placement:
    """The place of every row. Raises LogError when the steps cannot be counted in updates."""
    training = training_rows(table, picks)
    evaluated_only = not training.any()
    if evaluated_only:
        training[table.columns[picks.reward].at()] = True
    axis = _axis(table, training, framework.not_steps)
    if axis is None:
        return _by_order(table, training, evaluated_only, updates_per_row)
    if axis == names.ROLLOUT_STEP and _column(table, names.TRAIN_STEP) is not None:
        return _two_axes(table, picks, updates_per_row)
    steps, notes = _steps(table, axis, training)
    several = _rows_of_a_step(table, picks, steps, training)
    if several > 1:
        return _by_order(table, training, evaluated_only, updates_per_row, several=several)
    own = names.plain(axis) == names.UPDATE
    spacing = _spacing(steps[training])
    certain = own or axis == names.TRAIN_STEP or framework.counts_updates
    if spacing >= SAMPLES and not certain and not evaluated_only and updates_per_row != spacing:
        steps = _in_rows(steps, training, axis, spacing, updates_per_row)
        notes.append(
            f"{axis} rises by {spacing:g} a row: it is taken to count samples, and rows are counted instead."
        )
        spacing = 1.0
    unit, said = (1, []) if own else _unit(updates_per_row, spacing, certain=certain)
    placed = _on(steps, training, unit, evaluated_only)
    placed.notes += (
        notes + said + ([] if own else _disagreeing(table, axis, steps, training, framework.not_steps))
    )
    if framework.averages and spacing > 1.0:
        _stretch(placed, training)
    return placed


def _column(table: LogTable, name: str) -> str | None:
    return next((held for held in table.columns if names.plain(held) == name), None)


def _axis(table: LogTable, training: np.ndarray, excluded: tuple[str, ...]) -> str | None:
    """The column of steps: the first that stands on nearly all training rows, else the fullest; None if none does."""
    if _column(table, names.ROLLOUT_STEP) is not None:
        return names.ROLLOUT_STEP
    held = names.columns_of((names.UPDATE, *names.STEPS), table.columns)
    shares = {name: _share(table, name, training) for name in held if names.plain(name) not in excluded}
    full = next((name for name, share in shares.items() if share > 0.95), None)
    if full is not None or not shares:
        return full
    best = max(shares, key=lambda name: shares[name])
    return best if shares[best] >= MOST_GAPS else None


def _share(table: LogTable, name: str, training: np.ndarray) -> float:
    return float((training & ~np.isnan(_whole(table, name))).sum() / max(1, training.sum()))


def _steps(table: LogTable, axis: str, training: np.ndarray) -> tuple[Floats, list[str]]:
    """The step of each row; a training row without one lies after the row before it."""
    steps = _whole(table, _column(table, axis) or axis)
    if np.isnan(steps).any():
        _fill_from_others(table, steps)
    lacking = np.flatnonzero(training & np.isnan(steps))
    if not lacking.size:
        return steps, []
    known = np.flatnonzero(training & ~np.isnan(steps))
    spacing = _spacing(steps[known])
    for row in lacking:
        before = np.searchsorted(known, row) - 1
        taken = (
            steps[row - 1]
            if row and not np.isnan(steps[row - 1])
            else (steps[known[before]] if before >= 0 else 0)
        )
        steps[row] = taken + spacing
    after = np.isin(steps[lacking], steps[known])
    steps[lacking[after]] = np.nan
    return steps, [
        f"{lacking.size} rows have no {axis}: {lacking.size - int(after.sum())} are placed after the row before "
        "them, the rest left out."
    ]


def _whole(table: LogTable, name: str) -> Floats:
    """A column of counts over rows, NaN where it holds none."""
    steps = _over_rows(table, name)
    whole = np.isfinite(steps) & (steps >= 0) & (steps == np.floor(steps))
    return np.where(whole, steps, np.nan)


def _fill_from_others(table: LogTable, steps: Floats) -> None:
    """Rows of evaluations often have another column of steps; it serves where both say the same when both are there."""
    for name in names.columns_of(names.STEPS, table.columns):
        other = _whole(table, name)
        both = ~np.isnan(steps) & ~np.isnan(other)
        if both.any() and np.array_equal(steps[both], other[both]):
            np.copyto(steps, other, where=np.isnan(steps))


def _rows_of_a_step(table: LogTable, picks: Picks, steps: Floats, training: np.ndarray) -> int:
    """How many rows each step has, where these are the updates made from one batch: one reward, several gradients."""
    gradient = picks.fields.get("grad_norm") or picks.fields.get("loss")
    if gradient is None or picks.evaluated:
        return 1
    rows = np.flatnonzero(training & ~np.isnan(steps))
    if rows.size < 2 or (np.diff(steps[rows]) < 0).any():
        return 1
    usual = int(np.median(np.unique(steps[rows], return_counts=True)[1]))
    same_step = np.diff(steps[rows]) == 0
    reward, norm = (_over_rows(table, name)[rows] for name in (picks.reward, gradient))
    # Comparisons with NaN are false: what is not there does not differ.
    new_reward = (reward[1:] < reward[:-1]) | (reward[1:] > reward[:-1])
    new_norm = (norm[1:] < norm[:-1]) | (norm[1:] > norm[:-1])
    differ = usual > 1 and np.mean(new_norm[same_step]) > MOST_GAPS and not new_reward[same_step].any()
    return usual if differ else 1


def _disagreeing(
    table: LogTable, axis: str, steps: Floats, training: np.ndarray, excluded: tuple[str, ...]
) -> list[str]:
    """A note on other columns of steps that do not rise with the one that is used."""
    others = []
    for name in names.columns_of(names.STEPS, table.columns):
        shift = (_whole(table, name) - steps)[training]
        shift = shift[~np.isnan(shift)]
        counts_otherwise = names.plain(name) in (*excluded, "_step")
        if name != axis and shift.size > 1 and np.ptp(shift) > 0 and not counts_otherwise:
            others.append(name)
    return [f"Steps are counted by {axis}; {', '.join(others)} rises differently."] if others else []


def _over_rows(table: LogTable, name: str) -> Floats:
    out = np.full(table.rows, np.nan)
    out[table.columns[name].at()] = table.columns[name].known()
    return out


def _spacing(steps: Floats) -> float:
    """Usual difference between consecutive steps."""
    distinct = np.unique(steps[~np.isnan(steps)])
    return float(np.median(np.diff(distinct))) if distinct.size > 1 else 1.0


def _in_rows(
    steps: Floats, training: np.ndarray, axis: str, spacing: float, updates_per_row: int | None
) -> Floats:
    """Steps that rise by many a row, counted in rows. Raises LogError when that is not what was passed, or uneven."""
    if updates_per_row is None:
        _check(steps[training], 1)
        raise LogError(
            f"{axis} rises by {spacing:g} a row, and the log does not tell whether it counts updates, samples or "
            f"episodes: pass --updates-per-row {spacing:g} if a step is one update, else the updates that a row "
            "stands for"
        )
    known = steps[training & ~np.isnan(steps)]
    rows: Floats = (steps - known.min() % spacing) / spacing
    if (known != known.min() + np.round((known - known.min()) / spacing) * spacing).any():
        raise LogError(
            f"{axis} rises by about {spacing:g} a row, but not evenly: number the updates in a column `update`"
        )
    return rows


def _unit(updates_per_row: int | None, spacing: float, *, certain: bool) -> tuple[int, list[str]]:
    """Updates of one step."""
    given = updates_per_row or 1
    if spacing <= 1.0 or given == 1:
        return given, []
    if given == spacing:
        return 1, [] if certain else [
            f"Steps rise by {spacing:g} a row, the updates of a row: a step is one update."
        ]
    if certain and given % spacing == 0:
        return int(given / spacing), []
    return given, [f"Steps rise by {spacing:g} a row; each step is taken as {given} updates."]


def _on(steps: Floats, training: np.ndarray, unit: int, evaluated_only: bool) -> Placement:
    """Steps of `unit` updates each, numbered from 0 or from 1."""
    _check(steps[training], unit)
    known = steps[training & ~np.isnan(steps)]
    if evaluated_only:
        at = steps * unit
        return Placement(at.copy(), at.copy(), at.copy(), unit, _spacing(known) * unit)
    shift = 1.0 if known.size and known.min() == 0.0 else 0.0
    end = (steps + shift) * unit
    return Placement(np.maximum(end - unit, 0.0), end, steps * unit, unit, _spacing(known) * unit)


def _check(steps: Floats, unit: int) -> None:
    known = steps[~np.isnan(steps)]
    largest = float(known.max()) if known.size else 0.0
    span = (largest - float(known.min()) if known.size else 0.0) + 1.0
    if span > SPARSEST * max(1, np.unique(known).size) or largest * unit > MOST_UPDATES:
        raise LogError(
            f"steps reach {largest:.6g} in {known.size} rows: they do not count updates or batches. Leave only a "
            "column `update`, `step` or `global_step` that does, or pass --updates-per-row with the updates of a row"
        )


def _by_order(
    table: LogTable,
    training: np.ndarray,
    evaluated_only: bool,
    updates_per_row: int | None,
    several: int = 1,
) -> Placement:
    """Each training row is the next: where there is no step, or a step has several rows.

    Without steps the epoch tells where a resumed run went back.
    """
    unit = updates_per_row or 1
    kept, notes = _without_abandoned(table, training) if several == 1 else (training, [])
    count = np.cumsum(kept).astype(float) * unit
    _check(count[kept] / unit, unit)
    end = np.where(kept, count, np.nan)
    placed = Placement(end - unit, end, count, unit, float(unit), notes, by_order=True)
    if evaluated_only:
        placed.begin, placed.end, placed.version = end - unit, end - unit, end - unit
    why = (
        f"A step has {several} rows with one reward and different gradients"
        if several > 1
        else "Rows have no step"
    )
    more = "" if updates_per_row else " Pass --updates-per-row if a row stands for more."
    placed.notes.append(
        f"{why}: each of the {int(kept.sum())} training rows is taken as the next {unit} update(s).{more}"
    )
    return placed


def _without_abandoned(table: LogTable, training: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Training rows without those that a run which went back to an earlier epoch made again."""
    column = table.columns.get("epoch")
    if column is None:
        return training, []
    epoch = np.full(table.rows, np.nan)
    epoch[column.at()] = column.known()
    kept, notes = training.copy(), []
    rows = np.flatnonzero(training & np.isfinite(epoch))
    for at in rows[1:][np.diff(epoch[rows]) < 0]:
        abandoned = np.flatnonzero(kept[:at] & (epoch[:at] >= epoch[at]))
        if epoch[at] <= epoch[rows[0]] and abandoned.size >= RESTARTED_ROWS:
            raise LogError(TWO_RUNS.format(rows=abandoned.size))
        kept[abandoned] = False
        notes.append(
            f"The epoch goes back to {epoch[at]:g}: {abandoned.size} rows before that are taken as made again."
        )
    return kept, notes


def _stretch(placed: Placement, training: np.ndarray) -> None:
    """Rows that hold means over the updates since the row before begin where that one ended."""
    ends = np.unique(placed.end[training & ~np.isnan(placed.end)])
    before = np.concatenate(([0.0], ends))[np.searchsorted(ends, placed.end)]
    placed.begin = np.maximum(before, placed.end - placed.spacing)


def _two_axes(table: LogTable, picks: Picks, updates_per_row: int | None) -> Placement:
    """slime: rows of `train/step` count updates, rows of `rollout/step` batches of some updates each."""
    every = np.ones(table.rows, dtype=bool)
    train, _ = _steps(table, names.TRAIN_STEP, ~every)
    rollout, _ = _steps(table, names.ROLLOUT_STEP, ~every)
    holds_reward = np.zeros(table.rows, dtype=bool)
    holds_reward[table.columns[picks.reward].at()] = True
    on_rollouts = ~np.isnan(rollout) & (np.isnan(train) | holds_reward)
    counted = _length(train) / max(1.0, _length(rollout[on_rollouts]))
    unit = max(1, round(counted))
    notes = [f"slime's {names.ROLLOUT_STEP} is {unit} of its {names.TRAIN_STEP}, which are updates."]
    if updates_per_row not in (None, 1, unit):
        unit = int(updates_per_row or 1)
        notes = [
            f"A row of {names.ROLLOUT_STEP} is taken as {unit} updates, as was passed; the log has {counted:.3g}."
        ]
    updates = _on(train, ~np.isnan(train), 1, False)
    placed = _on(np.where(on_rollouts, rollout, np.nan), on_rollouts, unit, False)
    for mine, theirs in (
        (placed.begin, updates.begin),
        (placed.end, updates.end),
        (placed.version, updates.version),
    ):
        np.copyto(mine, theirs, where=~on_rollouts)
    placed.notes += notes
    return placed


def _length(steps: Floats) -> float:
    known = steps[~np.isnan(steps)]
    return float(known.max() - known.min() + 1.0) if known.size else 0.0
