"""The sweep: rounds of trials, each planned from the trials before, then a confirmation at the recommendation.

Everything here depends on counted quantities only, so a study is a function of its config: which worker was
faster, or how often the command was killed, changes nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from calibrator.advice.types import Recommendation
from calibrator.errors import CorruptStudyError
from calibrator.handoff.conclude import Conclusion, conclude, embedded_cost, with_suggestion
from calibrator.study.config import StudyConfig
from calibrator.study.journal import Journal
from calibrator.study.results import CONFIG, PROPOSAL, TrialResult, load_result
from calibrator.study.store import StudyFolder, read_record, write_json
from calibrator.sweep.answer import answer
from calibrator.sweep.design import DesignSpace, ProposedRun, first_round, narrow_enough, next_round
from calibrator.sweep.questions import CONFIRM, is_confirmation, question_of
from trainer.config import RunConfig


class Execute(Protocol):
    """Runs the trials in `folders` that have no verdict yet and returns when all have one."""

    def __call__(self, folders: Sequence[Path], *, stage: str, spent: int) -> None: ...


@dataclass(frozen=True)
class SweepResult:
    conclusion: Conclusion
    spent: int
    """Updates that all trials made."""
    budget_bound: bool
    """Whether max_updates kept the study from something that it wanted to run."""


class Sweep:
    """One study on its way from the first round to the confirmed recommendation."""

    def __init__(self, config: StudyConfig, study: StudyFolder, journal: Journal, execute: Execute) -> None:
        self.config, self.study, self.journal, self._execute = config, study, journal, execute
        self.results: list[TrialResult] = []
        """All finished trials, confirmations included."""
        self.budget_bound = False
        self._restore_purposes()
        self._confirmations = [
            result
            for name in journal.stages()
            if name.startswith(CONFIRM)
            for result in self._finished([study.trial(number) for number in journal.known(name)])
        ]
        """Those that were finished before: their updates are spent, whether or not this answer asks for them."""

    def run(self) -> SweepResult:
        """Go on from wherever the study folder stands."""
        for number in itertools.count(1):
            name = f"round-{number}"
            # What was planned once is carried out and counts, whatever the settings say now.
            if self.journal.plan(name) is None and (
                self.budget_bound or number > self.config.sweep.rounds or self._is_sharp()
            ):
                break
            self.stage(name, self._plan_round)
        return self._confirmed()

    @property
    def spent(self) -> int:
        """Updates made so far."""
        return self._spent_with([])

    def stage(
        self,
        name: str,
        plan: Callable[[], list[ProposedRun]],
        *,
        title: str | None = None,
        most: int | None = None,
        evaluate: bool = False,
    ) -> list[TrialResult]:
        """Plan a stage once, run what max_updates affords, tell the journal. Returns the finished trials.

        Runs are taken in order and while their full lengths fit; what runs leave by ending early is used in turn.
        Of a plan for more runs than `most` only so many are made; finished ones always count. Progress is shown under
        `title`, or the stage's name.
        """
        planned = self.journal.plan(name)
        if planned is None:
            planned = plan()
            self.journal.record_plan(name, planned)
        done = self._finished([self.study.trial(number) for number in self.journal.known(name)])
        planned = planned[: len(planned) if most is None else max(most, len(done))]
        while len(done) < len(planned):
            runs = planned[: len(done) + self._affordable(planned[len(done) :], done)]
            if len(runs) == len(done):
                self.budget_bound = True
                break
            folders = [
                self._folder(number, name, run, evaluate=evaluate)
                for number, run in zip(self.journal.numbers(name, runs), runs, strict=True)
            ]
            self._execute(folders, stage=title or name, spent=self._spent_with(done))
            before, done = len(done), self._finished(folders)
            if len(done) == before:
                raise CorruptStudyError(
                    f"{folders[before]} has no verdict after its run; move the folder away"
                )
        for result in done:
            self.journal.tell(result.number, survived(result))
        self.results += done
        return done

    def _spent_with(self, done: Sequence[TrialResult]) -> int:
        """Updates made so far, those of `done` included; each trial counts once."""
        made = {r.number: r.verdict.updates for r in (*self._confirmations, *self.results, *done)}
        return sum(made.values())

    def _finished(self, folders: Sequence[Path]) -> list[TrialResult]:
        """Results of the leading trials that have a verdict."""
        results = (load_result(folder) for folder in folders)
        return [
            result for result in itertools.takewhile(lambda r: r is not None, results) if result is not None
        ]

    def _affordable(self, runs: Sequence[ProposedRun], done: Sequence[TrialResult]) -> int:
        """How many of `runs`, in order, fit with their full lengths into what max_updates leaves."""
        limit = self.config.sweep.max_updates
        if limit is None:
            return len(runs)
        left = limit - self._spent_with(done)
        return sum(total <= left for total in itertools.accumulate(run.updates for run in runs))

    def _folder(self, number: int, stage: str, run: ProposedRun, *, evaluate: bool) -> Path:
        """Folder of a trial with its config. Raises CorruptStudyError when it holds another run."""
        folder = self.study.trial(number)
        config = self.config.run_config(
            estimator=run.estimator,
            sync_interval=run.sync_interval,
            learning_rate=run.learning_rate,
            updates=run.updates,
            seed=run.seed,
            evaluate=evaluate,
        )
        if (folder / CONFIG).exists():
            found = read_record(folder / CONFIG, RunConfig, remedy=f"move {folder} away")
            if found.digest() != config.digest():
                raise CorruptStudyError(
                    f"{folder} holds another run than the journal plans: move {self.study.journal.name} back, "
                    "or start a new study in another folder"
                )
            if found != config:  # logging, which results do not depend on
                write_json(folder / CONFIG, config.model_dump(mode="json"))
            _state_purpose(folder, stage, run)
            return folder
        folder.mkdir(parents=True, exist_ok=True)
        _state_purpose(folder, stage, run)
        write_json(folder / CONFIG, config.model_dump(mode="json"))
        return folder

    def _restore_purposes(self) -> None:
        """Where a trial lost its proposal.json, the journal knows why it was made."""
        for name in self.journal.stages():
            for number, run in zip(self.journal.known(name), self.journal.plan(name) or [], strict=False):
                if (folder := self.study.trial(number)).is_dir():
                    _state_purpose(folder, name, run)

    def _plan_round(self) -> list[ProposedRun]:
        """Proposals for all estimators; the one that decides first, so that it gets its runs when updates are short."""
        decisive = self.config.trainer.estimator
        names = [decisive, *(name for name in self.config.sweep.estimators if name != decisive)]
        return [run for name in names for run in proposals(self.config, name, self.results)]

    def _is_sharp(self) -> bool:
        """Whether the answer at the interval that would be recommended is sharp enough to stop."""
        if not self.results:
            return False
        conclusion = conclude(self.config, self.study, self.results)
        stratum, advice = conclusion.stratum(self.config.trainer.estimator), conclusion.recommendation
        if stratum is None or advice is None:
            return False
        return narrow_enough(
            stratum.posterior,
            [1 + advice.max_lag],
            risk=self.config.advice.risk,
            factor=self.config.sweep.sharp_enough,
        )

    def _confirmed(self) -> SweepResult:
        """Run the recommended numbers at full length. A collapse there lowers them, and they are run once more."""
        self._recall_other_confirmations()
        conclusion, fitted = answer(self.config, self.study, self.results, self._confirming)
        conclusion = with_suggestion(self.config, self.study, fitted, conclusion)
        return SweepResult(conclusion, self.spent, self.budget_bound)

    def _confirming(self, name: str, advice: Recommendation) -> list[TrialResult]:
        """Runs of the stage `name` at the recommended numbers; none where the updates or the config forbid it."""
        if self.budget_bound or self.config.sweep.confirmations == 0:
            return []
        return self.stage(name, partial(self._confirmation_plan, advice), title="confirmation", evaluate=True)

    def _recall_other_confirmations(self) -> None:
        """Confirmations of what was recommended for another horizon, risk or rule, and runs that checked an answer."""
        question = question_of(self.config)
        self.results += [r for r in self._confirmations if not is_confirmation(question, r.stage)]

    def _confirmation_plan(self, advice: Recommendation) -> list[ProposedRun]:
        used = [result.config.seed for result in self.results]
        run = ProposedRun(
            estimator=advice.estimator,
            sync_interval=advice.sync_interval,
            learning_rate=advice.learning_rate,
            seed=max(used) + 1,
            updates=advice.horizon,
            reason="confirms the recommended four numbers",
        )
        return [replace(run, seed=run.seed + i) for i in range(self.config.sweep.confirmations)]


def proposals(config: StudyConfig, estimator: str, results: Sequence[TrialResult]) -> list[ProposedRun]:
    """Runs of the next round of one estimator; the coarse first round when it has no run yet.

    Measured seconds never steer the design, or the study would depend on how busy the machine was; the fixed ones of
    the embedded default do.
    """
    decides, space = estimator == config.trainer.estimator, design_space(config, estimator)
    own = [result.run() for result in results if result.config.trainer.estimator == estimator]
    if not own:
        return first_round(space, rates_per_interval=config.sweep.rates_per_interval)
    size = config.sweep.round_size if decides else max(1, config.sweep.round_size // 2)
    seconds = None
    if decides and config.is_embedded_default:
        cost = embedded_cost()
        seconds = {interval: cost.seconds_per_update(interval) for interval in config.sweep.sync_intervals}
    return next_round(own, space, round_size=size, seconds_per_update=seconds)


def design_space(config: StudyConfig, estimator: str) -> DesignSpace:
    """What the sweep of one estimator may choose from."""
    return DesignSpace(
        estimator=estimator,
        sync_intervals=config.sweep.sync_intervals,
        learning_rates=config.sweep.learning_rates,
        seeds=config.sweep.seeds,
        longest=config.longest,
        warmup=config.trainer.warmup,
        risk=config.advice.risk,
    )


def _state_purpose(folder: Path, stage: str, run: ProposedRun) -> None:
    """Write why the trial is made, unless it stands there."""
    if not (folder / PROPOSAL).exists():
        write_json(folder / PROPOSAL, {"stage": stage, **asdict(run)})


def survived(result: TrialResult) -> float:
    """Cumulative learning rate that the run survived: L at the last good version, or at its end."""
    onset = result.verdict.cumulative_lr_at_onset
    return onset[0] if onset else result.verdict.cumulative_lr_total or 0.0
