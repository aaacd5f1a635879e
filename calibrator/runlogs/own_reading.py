"""Our own metrics as a log among others: versions, standard errors and probes are in them."""

from __future__ import annotations

import numpy as np

from calibrator.runlogs.broken import Broken
from calibrator.runlogs.curve import Floats, Series
from calibrator.runlogs.own import WITNESSES
from calibrator.runlogs.reading import Reading
from calibrator.runlogs.series import Observed
from trainer.metrics import FATAL

NAME = "calibrate"
COLUMNS = {"update", "version", "reward_mean"}


class OwnReading(Reading):
    """Rows of `trainer.metrics.MetricsRow`; gives the curve that `calibrator.runlogs.own` gives, in less memory."""

    def _sync_interval(self) -> int:
        told = self.settings.sync_interval
        versions = np.unique(self._seen("version").value)
        seen = max(1, int(np.median(np.diff(versions)))) if versions.size > 1 else None
        if told is not None and seen is not None and told != seen:
            self.notes.append(
                f"The versions in the log are {seen} apart, so S = {seen}; the S = {told} that was passed is used."
            )
        return told or seen or max(1, self.updates)

    def _warnings(self) -> tuple[str, ...]:
        """What was found, without what other logs have to guess: the columns are ours."""
        return tuple(dict.fromkeys(note for note in self.notes if note not in self.picks.notes))

    def _rewards(self, S: int) -> Series:
        seen = self._seen("reward_mean")
        version, se = self._at(seen, "version"), self._at(seen, "reward_se")
        return _ordered("reward", version, seen.value, se, seen.end)

    def _probes(self) -> Series | None:
        if "probe_reward" not in self.table.columns:
            return None
        seen = self._seen("probe_reward")
        version, se = self._at(seen, "probe_version"), self._at(seen, "probe_se")
        value, ends = seen.value, seen.end
        if "initial_reward" in self.table.columns:
            first = self._seen("initial_reward")
            version, ends = np.append(0.0, version), np.append(0.0, ends)
            value, se = np.append(first.value[:1], value), np.append(self._at(first, "initial_se")[:1], se)
        return _ordered("probe", version, value, se, ends)

    def _others(self, S: int) -> tuple[Series, ...]:
        return ()

    def _witness_columns(self) -> dict[str, str]:
        return {name: name for name in WITNESSES}

    def _broken(self) -> Broken | None:
        """The trainer stops at the first value that is not finite."""
        columns = [self._seen(name) for name in FATAL if name in self.table.columns]
        begins = [seen.begin[~np.isfinite(seen.value)] for seen in columns]
        first = min((int(begin.min()) for begin in begins if begin.size), default=None)
        return Broken(first, first + 1) if first is not None else None

    def _at(self, seen: Observed, name: str) -> Floats:
        """Another column on the rows of `seen`; NaN where it is not there."""
        out = np.full(self.table.rows, np.nan)
        column = self.table.columns.get(name)
        if column is not None:
            out[column.at()] = column.known()
        return np.asarray(out[seen.rows])


def _ordered(name: str, version: Floats, value: Floats, se: Floats, seen: Floats) -> Series:
    keep = np.flatnonzero(np.isfinite(value) & np.isfinite(version))
    order = keep[np.argsort(version[keep], kind="stable")]
    return Series(name, version[order], value[order], se[order], seen[order])
