"""The study's record in Optuna: ask and tell over journal storage, rounds planned in one line each.

A trial's result is its own folder; the journal may lose its tail (a kill in the middle of a line) and the study
still goes on: the plan is a function of the finished trials, and a finished folder is never run again.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState

from calibrator.errors import CorruptStudyError
from calibrator.sweep.design import ProposedRun
from trainer.names import EstimatorName

STUDY_NAME = "calibration"
REMEDY = (
    "move the file away, then `calibrate run` with the study file makes it anew; finished trials lie in trials/ "
    "and are not run twice"
)
PLAN = "plan:"
_LARGEST = 10**9
_DISTRIBUTIONS: dict[str, BaseDistribution] = {
    "estimator": CategoricalDistribution(get_args(EstimatorName)),
    "sync_interval": IntDistribution(1, _LARGEST, log=True),
    "learning_rate": FloatDistribution(1e-300, 1e3, log=True),
    "seed": IntDistribution(0, _LARGEST),
    "updates": IntDistribution(1, _LARGEST),
}

logger = logging.getLogger(__name__)


class Journal:
    """Plans and outcomes of one study. The caller holds the study's lock."""

    def __init__(self, path: Path) -> None:
        """Open or create. Raises CorruptStudyError when a line in the middle cannot be read."""
        repair(path)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
        lock = JournalFileOpenLock(str(path))
        # Optuna's own lock outlives a killed process for 30 seconds; the study's lock says that nobody holds it.
        path.with_name(path.name + ".lock").unlink(missing_ok=True)
        try:
            storage = JournalStorage(JournalFileBackend(str(path), lock_obj=lock))
            self._study = optuna.create_study(
                storage=storage,
                study_name=STUDY_NAME,
                direction="maximize",
                sampler=optuna.samplers.RandomSampler(seed=0),
                load_if_exists=True,
            )
        except (AssertionError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptStudyError(
                f"{path} holds a record that makes no sense ({error!r}): {REMEDY}"
            ) from error

    def plan(self, stage: str) -> list[ProposedRun] | None:
        """Runs of a stage as they were planned first; None when it was not planned yet."""
        stored = self._study.user_attrs.get(PLAN + stage)
        try:
            return None if stored is None else [ProposedRun(**run) for run in stored]
        except TypeError as error:
            raise CorruptStudyError(
                f"journal.log: the plan of {stage} makes no sense ({error}): {REMEDY}"
            ) from error

    def record_plan(self, stage: str, plan: Sequence[ProposedRun]) -> None:
        """Keep a stage's plan: from now on it is what this stage is, whatever changes later."""
        self._study.set_user_attr(PLAN + stage, [asdict(run) for run in plan])

    def stages(self) -> list[str]:
        """Names of all stages that were planned, in order."""
        return [key.removeprefix(PLAN) for key in self._study.user_attrs if key.startswith(PLAN)]

    def known(self, stage: str) -> list[int]:
        """Numbers of the trials that the stage asked for so far, in the order of its plan."""
        slots = {
            tuple(trial.user_attrs["slot"]): trial.number for trial in self._study.get_trials(deepcopy=False)
        }
        return [number for (name, _), number in sorted(slots.items()) if name == stage]

    def numbers(self, stage: str, plan: Sequence[ProposedRun]) -> list[int]:
        """Trial numbers of a stage, asking for those that are new."""
        known = {tuple(trial.user_attrs["slot"]): trial for trial in self._study.get_trials(deepcopy=False)}
        return [
            self._number(known.get((stage, index)), (stage, index), run) for index, run in enumerate(plan)
        ]

    def tell(self, number: int, value: float) -> None:
        """Record an outcome once; `value` is the cumulative learning rate that the run survived."""
        self._study.tell(number, value, skip_if_finished=True)

    def _number(self, known: FrozenTrial | None, slot: tuple[str, int], run: ProposedRun) -> int:
        if known is not None and known.state is not TrialState.WAITING:
            return known.number
        if known is None:
            params = {name: getattr(run, name) for name in _DISTRIBUTIONS}
            self._study.enqueue_trial(params, user_attrs={"slot": list(slot), "reason": run.reason})
        # Trials are asked for one by one, so at most one is waiting: the one that this slot wants.
        return self._study.ask(_DISTRIBUTIONS).number


def repair(path: Path) -> bool:
    """Cut off a torn last line, which is owed work; True when there was one.

    Raises CorruptStudyError naming the line when another one cannot be read.
    """
    if not path.exists():
        return False
    content = path.read_bytes()
    lines = content.split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):
        if not _is_record(line):
            raise CorruptStudyError(f"{path}, line {number} cannot be read back: {REMEDY}")
    if not lines[-1]:
        return False
    logger.warning(
        "%s ended in the middle of a line; the torn line is dropped and its work is done again", path
    )
    with path.open("r+b") as file:
        file.truncate(len(content) - len(lines[-1]))
    return True


def _is_record(line: bytes) -> bool:
    try:
        record: Any = json.loads(line)
    except ValueError:
        return False
    return isinstance(record, dict) and "op_code" in record
