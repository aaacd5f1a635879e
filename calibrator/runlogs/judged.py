"""A log with its verdict, and the run that the laws are fitted on."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibrator.errors import LogError
from calibrator.laws.types import Run
from calibrator.runlogs.read import ReadLog, read_log
from calibrator.runlogs.settings import LogSettings
from calibrator.verdicts.judge import judge
from calibrator.verdicts.types import RunVerdict, Verdict

NAMED_ALIKE = frozenset({"metrics", "trainer_state", "train", "log", "eval", "events", "output", "history"})
"""File names that say nothing about the run: its folder does."""
CHECKPOINT = re.compile(r"checkpoints|(checkpoint|ckpt|global_?step|step|iter)[-_]?\d+", re.IGNORECASE)
"""Folders within a run's own, as trainers name them."""


@dataclass(frozen=True)
class JudgedLog:
    """A log that was read and judged."""

    path: Path
    settings: LogSettings
    log: ReadLog
    verdict: RunVerdict

    @property
    def name(self) -> str:
        """Name of the run: as set, or that of its file, or of the folder where the file is named as all are."""
        if self.settings.run is not None:
            return self.settings.run
        path = self.path.absolute()
        alike = path.stem in NAMED_ALIKE or "tfevents" in path.name
        folders = (folder.name for folder in path.parents if folder.name)
        name = next((name for name in folders if alike and not CHECKPOINT.fullmatch(name)), path.stem)
        return "".join(char if char.isprintable() else "?" for char in name)

    @property
    def max_lag(self) -> int:
        """Largest lag: as set, or the largest in the log before the onset, or S - 1."""
        if self.log.max_lag is not None:
            return self.log.max_lag
        onset = self.verdict.onset_updates
        before = max(1, math.ceil(onset[1])) if onset else self.verdict.updates
        lags = self.log.curve.witnesses.get("lag_max", np.empty(0))[:before]
        known = lags[np.isfinite(lags)]
        return int(known.max()) if known.size else self.log.judge.sync_interval - 1

    def run(self) -> Run:
        """The run as a row of RUNS.csv. Raises LogError when the learning rate is not known."""
        verdict, rate = self.verdict, self.log.curve.learning_rate
        if verdict.cumulative_lr_total is None or not rate.size:
            raise LogError(f"{self.path}: the log does not hold every learning rate; pass --learning-rate")
        onset, cumulative = verdict.onset_updates, verdict.cumulative_lr_at_onset
        return Run(
            run=self.name,
            estimator=self.settings.estimator,
            strata=self.settings.strata,
            sync_interval=self.log.judge.sync_interval,
            max_lag=self.max_lag,
            learning_rate=float(rate.max()),
            seed=self.settings.seed,
            updates=verdict.updates,
            verdict=verdict.verdict,
            cumulative_lr=verdict.cumulative_lr_total,
            onset_low=onset[0] if onset else None,
            onset_high=onset[1] if onset else None,
            cumulative_lr_onset_low=cumulative[0] if cumulative else None,
            cumulative_lr_onset_high=cumulative[1] if cumulative else None,
        )


def judge_log(path: Path, settings: LogSettings) -> JudgedLog:
    """Read and judge one log. Raises LogError."""
    log = read_log(path, settings)
    return JudgedLog(path, settings, log, _of_whole_rows(judge(log.curve, log.judge), log))


def _of_whole_rows(verdict: RunVerdict, log: ReadLog) -> RunVerdict:
    """A row of several updates that is not finite does not tell which of them broke it."""
    broken, onset = log.broken, verdict.onset_updates
    if verdict.verdict is not Verdict.DIVERGED or broken is None or onset is None or broken.end <= onset[1]:
        return verdict
    low, high = onset[0], float(broken.end)
    cumulative = [log.curve.cumulative_lr(version) for version in (low, high)]
    known = (cumulative[0], cumulative[1]) if np.isfinite(cumulative).all() else None
    return verdict.model_copy(update={"onset_updates": (low, high), "cumulative_lr_at_onset": known})
