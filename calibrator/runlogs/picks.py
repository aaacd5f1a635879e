"""Which columns of a log are used for what."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrator.errors import LogError
from calibrator.runlogs import names
from calibrator.runlogs.table import Column, LogTable

LISTED = 40
MOST_WITNESSES = 8
"""Further series that may testify; logs of many data sets have dozens."""


@dataclass(frozen=True)
class Picks:
    """Columns by role. `fields` has the learning rate, gradient norm, loss and witnesses that the log holds."""

    reward: str
    fields: dict[str, str]
    testify: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def evaluated(self) -> bool:
        """Whether the reward is measured on the learner itself, not on rollouts."""
        return names.is_evaluation(self.reward)


def pick(table: LogTable, reward_column: str | None, hint: str = "") -> Picks:
    """Choose the columns. Raises LogError, with the columns that there are, when none can be the reward.

    `hint` says where the framework writes its rewards, if not here.
    """
    known = {name: column for name, column in table.columns.items() if column.is_known()}
    reward, notes = _reward(table, known, reward_column, hint)
    run = names.prefix(reward)
    own_run = [name for name in known if names.prefix(name) in (run, "")]
    fields = {}
    for field, aliases in names.FIELDS.items():
        found = [name for name in names.columns_of(aliases, own_run) if name != reward]
        if found:
            fields[field] = found[0]
    for field in ("grad_norm", "loss"):  # all of it may be NaN, and that is what counts
        found = names.columns_of(names.FIELDS[field], table.columns)
        if field not in fields and found:
            fields[field] = found[0]
    testify = _testify(known, reward, own_run)
    if testify:
        notes.append(f"May testify beside it: {', '.join(testify)}.")
    return Picks(reward, fields, testify, tuple(notes))


def _reward(table: LogTable, known: dict[str, Column], named: str | None, hint: str) -> tuple[str, list[str]]:
    if named is not None:
        found = [name for name in known if name == named] or [
            name for name in known if names.plain(name) == names.plain(named)
        ]
        if len(found) != 1:
            raise LogError(f"no column {named!r} with numbers; {_listing(table)}")
        return found[0], []
    found = names.columns_of(names.REWARD, known)
    loose = [name for name in known if names.looks_like_reward(name)]
    if not found:
        found = [name for name in loose if not names.is_evaluation(name)] or [
            name for name in known if names.may_testify(name)
        ]
        if len(found) > 1:
            raise LogError(
                f"which column is the reward? Pass --reward-column with one of {', '.join(found[:LISTED])}"
            )
    if not found:
        raise LogError(f"no column is known to be a reward: {hint}pass --reward-column; {_listing(table)}")
    same = [name for name in found if names.plain(name) == names.plain(found[0])]
    if len(same) > 1:
        raise LogError(
            f"columns of {len(same)} runs ({', '.join(same[:5])}): pass --reward-column to choose one, "
            "or export one run at a time"
        )
    others = [
        name
        for name in dict.fromkeys((*found, *loose))
        if name != found[0] and not _copies(known[name], known[found[0]])
    ]
    if not others:
        return found[0], []
    beside = ", ".join(others[:8])
    return found[0], [f"The reward is {found[0]}, not {beside}: pass --reward-column if it is not."]


def _testify(known: dict[str, Column], reward: str, own_run: list[str]) -> tuple[str, ...]:
    """Other series whose end is the policy's end: scores before shaping, accuracies, evaluations."""
    raw = [name for name in names.columns_of(names.RAW, known) if not _copies(known[name], known[reward])]
    found = dict.fromkeys((*raw, *(name for name in own_run if names.may_testify(name))))
    return tuple(name for name in found if name != reward)[:MOST_WITNESSES]


def _copies(column: Column, other: Column) -> bool:
    """Whether one column is the other on another scale, and so has nothing to add."""
    if not np.array_equal(column.at(), other.at()):
        return False
    a, b = column.known(), other.known()
    keep = np.isfinite(a) & np.isfinite(b)
    a, b = a[keep], b[keep]
    if a.size < 2 or np.ptp(a) == 0.0 or np.ptp(b) == 0.0:
        return bool(a.size == 0 or np.ptp(a) == np.ptp(b) == 0.0)
    a, b = (a - a.min()) / np.ptp(a), (b - b.min()) / np.ptp(b)
    return bool(np.max(np.abs(a - b)) < 1e-6)


def _listing(table: LogTable) -> str:
    numeric = table.numeric
    more = f", ... ({len(numeric)} in all)" if len(numeric) > LISTED else ""
    return f"its columns with numbers are {', '.join(numeric[:LISTED])}{more}"
