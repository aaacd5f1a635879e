"""`calibrate confirm`: is what the study predicts what happens?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from calibrator.advice.prediction import ConfirmationRecord, Role, check, unsafe_rate
from calibrator.advice.rules import collapse_chances
from calibrator.advice.types import Recommendation
from calibrator.cli.console import AnswerConsole
from calibrator.cli.printing import print_record
from calibrator.cli.question import again_command, current_question
from calibrator.cli.reconsider import settled
from calibrator.cli.run import executing
from calibrator.errors import CorruptStudyError, ExitCode, NothingToSayError, StudyConfigError
from calibrator.handoff.write import read_confirmation, read_recommendation
from calibrator.laws.fitted import FittedStratum
from calibrator.laws.posterior import Posterior
from calibrator.study.config import StudyConfig
from calibrator.study.journal import Journal
from calibrator.study.results import TrialResult, load_results
from calibrator.study.store import StudyFolder, check_unchanged, open_study, resolve, write_json
from calibrator.sweep.checks import check_fit, check_inputs
from calibrator.sweep.confirm import check_stage, checks, outcomes, run_check
from calibrator.sweep.executor import Slots, make_slots
from calibrator.sweep.rounds import Sweep
from trainer.files import disk_errors


@dataclass(frozen=True)
class CheckWish:
    """Options of the command."""

    seeds: int = 5
    """Runs of each setting."""
    unsafe_factor: float | None = None
    """The unsafe rate over the recommended one."""
    unsafe_learning_rate: float | None = None
    workers: int | None = None
    max_updates: int | None = None


def confirm(root: Path, wish: CheckWish, *, as_json: bool) -> ExitCode:
    """Predict, run, compare; write confirmation.json and print it. INCONCLUSIVE when it came out otherwise.

    Raises StudyConfigError when there is no recommendation that can be checked, NothingToSayError when the fit
    predicts nothing.
    """
    study, made = open_study(root)
    with study.locked(), disk_errors(root):
        advice, before = read_recommendation(study), read_confirmation(study)
        config = current_question(
            study, made, resources={"workers": wish.workers}, sweep={"max_updates": wish.max_updates}
        )
        _refuse_what_trials_cannot_be(config, advice)
        check_unchanged(study, resolve(config))
        check_inputs(config)
        slots = make_slots(workers=config.resources.workers, gpus_per_trial=config.resources.gpus_per_trial)
        check_fit(config, slots)
        record = checked(config, study, advice, wish, slots)
        write_record(study, record, before)
    show(record, study, again_command(study, made, advice), as_json=as_json)
    return ExitCode.RECOMMENDED if record.as_predicted else ExitCode.INCONCLUSIVE


class BudgetSpentError(NothingToSayError):
    """The updates that were granted do not afford the runs."""

    exit_code = ExitCode.BUDGET_SPENT


def checked(
    config: StudyConfig, study: StudyFolder, advice: Recommendation, wish: CheckWish, slots: Slots
) -> ConfirmationRecord:
    """Predict from the runs that are not part of the check, then make those.

    Raises BudgetSpentError when max_updates forbids some, CorruptStudyError when the journal lost the sweep.
    """
    results = load_results(study)
    stratum = _stratum(config, study, advice, results)
    posterior = _posterior(stratum)
    warmup = config.trainer.warmup
    unsafe = chosen_unsafe_rate(posterior, advice, wish, warmup)
    rates: dict[Role, float] = {"recommended": advice.learning_rate, "unsafe": unsafe}
    names = [check_stage(advice, eta) for eta in rates.values()]
    journal = Journal(study.journal)
    if "round-1" not in journal.stages():
        raise CorruptStudyError(
            f"{study.journal} does not hold the sweep: move it away if it is there, then `calibrate run` with the "
            "study file takes up the finished trials; confirm after that"
        )
    with executing(config, study, slots) as execute:
        sweep = Sweep(config, study, journal, execute)
        sweep.results = [result for result in results if result.stage not in names]
        done = {role: run_check(sweep, advice, eta, wish.seeds) for role, eta in rates.items()}
    if sweep.budget_bound:
        missing = sum(max(0, wish.seeds - len(made)) for made in done.values())
        raise BudgetSpentError(
            f"max_updates = {config.sweep.max_updates} does not afford these runs: raise --max-updates to "
            f"{sweep.spent + missing * advice.horizon}, with which they can be made in full"
        )
    settings = [
        check(
            role=role,
            sync_interval=advice.sync_interval,
            learning_rate=eta,
            horizon=advice.horizon,
            chances=collapse_chances(posterior, 1 + advice.max_lag, eta, advice.horizon, warmup),
            trials=outcomes(done[role]),
        )
        for role, eta in rates.items()
    ]
    return ConfirmationRecord(
        estimator=advice.estimator,
        fitted_runs=stratum.summary.runs,
        settings=settings,
        as_predicted=all(setting.inside for setting in settings),
    )


def chosen_unsafe_rate(posterior: Posterior, advice: Recommendation, wish: CheckWish, warmup: int) -> float:
    """The rate that was asked for, or the smallest at which the posterior is sure of a collapse by T."""
    if wish.unsafe_learning_rate is not None and wish.unsafe_factor is not None:
        raise StudyConfigError("--unsafe-factor and --unsafe-learning-rate say the same: give one of them")
    if wish.unsafe_learning_rate is not None:
        eta = wish.unsafe_learning_rate
    elif wish.unsafe_factor is not None:
        eta = float(f"{wish.unsafe_factor * advice.learning_rate:.2g}")
    else:
        found = unsafe_rate(
            posterior,
            1 + advice.max_lag,
            above=advice.learning_rate,
            horizon=advice.horizon,
            warmup=warmup,
        )
        if found is None:
            raise NothingToSayError(
                f"no rate at S = {advice.sync_interval} is sure to collapse within T = {advice.horizon} updates by the "
                "fit: name one with --unsafe-factor or --unsafe-learning-rate"
            )
        eta = found
    if not advice.learning_rate < eta <= 1e3:
        raise StudyConfigError(
            f"the unsafe learning rate {eta:g} must lie above the recommended {advice.learning_rate:g}, and not above "
            "1000: change --unsafe-factor or --unsafe-learning-rate"
        )
    return eta


def write_record(study: StudyFolder, record: ConfirmationRecord, before: ConfirmationRecord | None) -> None:
    """Write confirmation.json; the one before, if about other numbers, is kept as confirmation.previous.json."""
    path = study.confirmation
    if before is not None and _numbers(before) != _numbers(record):
        path.replace(path.with_name("confirmation.previous.json"))
    write_json(path, record.model_dump(mode="json"))


def show(record: ConfirmationRecord, study: StudyFolder, again: str, *, as_json: bool) -> None:
    """Print the record, and what to type next."""
    if as_json:
        print_record(record)
        return
    from reports.cards.confirmation import confirmation_cards
    from reports.terminal import render_cards

    render_cards(
        f"Confirmation of {study.root}", confirmation_cards(record, str(study.root), again), AnswerConsole()
    )


def _numbers(record: ConfirmationRecord) -> list[tuple[int, float, int]]:
    return [(each.sync_interval, each.learning_rate, each.horizon) for each in record.settings]


def _stratum(
    config: StudyConfig, study: StudyFolder, advice: Recommendation, results: list[TrialResult]
) -> FittedStratum:
    """The fit of the recommended estimator without the runs that check this recommendation."""
    before = [result for result in results if not checks(advice, result)]
    conclusion, _ = settled(config, study, before)
    stratum = conclusion.stratum(advice.estimator)
    if stratum is None:
        raise NothingToSayError(
            f"{study.root} has no finished run of estimator {advice.estimator!r}; next: the same `calibrate run` again"
        )
    return stratum


def _posterior(stratum: FittedStratum) -> Posterior:
    if stratum.posterior is None:
        raise NothingToSayError(
            "the runs of the study no longer identify a boundary, so nothing can be predicted: "
            "`calibrate recommend STUDY` says what to run next"
        )
    return stratum.posterior


def _refuse_what_trials_cannot_be(config: StudyConfig, advice: Recommendation) -> None:
    if advice.schedule != "lockstep":
        raise StudyConfigError(
            f"the recommendation is for schedule {advice.schedule}, and trials run in lockstep: "
            "`calibrate recommend STUDY --schedule lockstep` first"
        )
    swept = (config.trainer.estimator, config.trainer.group_size, config.trainer.epsilon)
    if (advice.estimator, advice.group_size, advice.epsilon) != swept:
        raise StudyConfigError(
            f"the recommendation is for estimator, G and epsilon {advice.estimator}, {advice.group_size}, "
            f"{advice.epsilon}, the study's runs and laws are for {', '.join(map(str, swept))}: "
            "`calibrate recommend STUDY` first"
        )
