"""Finished trials, read back from their folders."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from calibrator.errors import CorruptStudyError
from calibrator.laws.types import Run
from calibrator.runlogs.curve import Curve
from calibrator.runlogs.own import read_metrics
from calibrator.study.store import StudyFolder, read_json, read_record
from calibrator.verdicts.types import RunVerdict
from trainer.config import RunConfig, digest
from trainer.summary import RunSummary

UNTOLD = 4
"""Exit code of a trial process that could not even write its error.json."""
PROPOSAL = "proposal.json"
"""Why the trial was made: its stage and what the design proposed."""
RESTORED = "`calibrate run` writes it anew from the journal"
CHECK_STAGE = "confirm-check"
"""Begins the stages of `calibrate confirm`; by its first word the sweep takes their runs into the next fit."""
CHECKED_RUNS = "checked_runs"
"""Finding of a recommendation whose fit took such runs in."""
LOG = "trial.log"
"""What the trial and the user's own task printed."""
CONFIG, VERDICT, SUMMARY, ERROR, METRICS = (
    "config.json",
    "verdict.json",
    "summary.json",
    "error.json",
    "metrics.jsonl",
)


@dataclass(frozen=True)
class TrialResult:
    """A judged trial."""

    number: int
    folder: Path
    config: RunConfig
    verdict: RunVerdict
    summary: RunSummary

    @property
    def name(self) -> str:
        """Short name by which reports refer to the run."""
        estimator, config = self.config.trainer.estimator, self.config
        return f"{estimator}-S{config.sync_interval}-eta{config.learning_rate:.2g}-{self.number}"

    @cached_property
    def stage(self) -> str:
        """Stage of the study that asked for the trial: `round-1`, `confirm-...`. Raises CorruptStudyError.

        A trial that cannot say it is never taken for one of the sweep: confirmations are judged apart from the fit.
        """
        path = self.folder / PROPOSAL
        if not path.exists():
            raise CorruptStudyError(f"{path} is missing; {RESTORED}")
        stage = read_json(path, remedy=f"move it away; {RESTORED}").get("stage")
        if not isinstance(stage, str) or not stage:
            raise CorruptStudyError(f"{path} names no stage; move it away; {RESTORED}")
        return stage

    @property
    def is_check(self) -> bool:
        """Whether `calibrate confirm` made the trial."""
        return self.stage.startswith(CHECK_STAGE)

    @cached_property
    def curve(self) -> Curve:
        """The log. Raises CorruptStudyError when it is not the one that the verdict is about."""
        path = self.folder / METRICS
        again = f"move {self.folder} away: the trial is run again, the others are kept"
        try:
            curve = read_metrics(path)
        except OSError as error:
            raise CorruptStudyError(f"{path} cannot be read ({error.strerror}); {again}") from error
        if curve.updates != self.verdict.updates:
            raise CorruptStudyError(
                f"{path} holds {curve.updates} updates, its verdict is about {self.verdict.updates}; {again}"
            )
        return curve

    @cached_property
    def max_lag(self) -> int:
        """Largest lag before the onset: a run that died in its first cycle was never as stale as S - 1."""
        onset = self.verdict.onset_updates
        before = math.ceil(onset[1]) if onset else self.verdict.updates
        lags = self.curve.witnesses.get("lag_max", np.empty(0))[:before]
        known = lags[np.isfinite(lags)]
        return int(known.max()) if known.size else min(self.config.sync_interval, self.config.updates) - 1

    def run(self, max_lag: int | None = None) -> Run:
        """The trial as the laws see it. `max_lag` where it is known already: the log is not read for it."""
        onset, cumulative = self.verdict.onset_updates, self.verdict.cumulative_lr_at_onset
        return Run(
            run=self.name,
            estimator=self.config.trainer.estimator,
            strata=strata(self.config),
            sync_interval=self.config.sync_interval,
            max_lag=self.max_lag if max_lag is None else max_lag,
            learning_rate=self.config.learning_rate,
            seed=self.config.seed,
            updates=self.verdict.updates,
            verdict=self.verdict.verdict,
            cumulative_lr=self.verdict.cumulative_lr_total or 0.0,
            onset_low=onset[0] if onset else None,
            onset_high=onset[1] if onset else None,
            cumulative_lr_onset_low=cumulative[0] if cumulative else None,
            cumulative_lr_onset_high=cumulative[1] if cumulative else None,
        )


def strata(config: RunConfig) -> dict[str, str]:
    """Settings that separate strata besides the estimator, as short texts."""
    trainer = config.trainer
    rest = trainer.model_dump(
        mode="json", exclude={"estimator", "group_size", "prompts_per_update", "epsilon"}
    )
    adapters = {} if trainer.lora is None else {"LoRA": f"rank {trainer.lora.rank}"}
    return {
        "model": config.model.path,
        **adapters,
        "task": config.task.name,
        "G": str(trainer.group_size),
        "P": str(trainer.prompts_per_update),
        "epsilon": f"{trainer.epsilon:g}",
        "other settings": digest(rest)[:8],
    }


def load_result(folder: Path) -> TrialResult | None:
    """The trial in `folder`, or None while it has no verdict. Raises CorruptStudyError naming a broken file."""
    try:
        (folder / VERDICT).stat()
    except (FileNotFoundError, NotADirectoryError):  # any other error hides a verdict
        return None
    again = f"move {folder} away: the trial is run again, the others are kept"
    return TrialResult(
        number=int(folder.name),
        folder=folder,
        config=read_record(folder / CONFIG, RunConfig, remedy=again),
        verdict=read_record(folder / VERDICT, RunVerdict, remedy=again),
        summary=read_record(folder / SUMMARY, RunSummary, remedy=again),
    )


def load_results(study: StudyFolder) -> list[TrialResult]:
    """All judged trials by number."""
    return [result for folder in study.trials() if (result := load_result(folder)) is not None]
