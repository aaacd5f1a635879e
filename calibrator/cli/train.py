"""`calibrate train`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.console import Console

from calibrator.advice.request import effective_interval_of, interval_in, interval_within
from calibrator.advice.types import FrontierRow, Recommendation
from calibrator.cli.training import TrainingView
from calibrator.errors import ExitCode, StudyConfigError
from calibrator.handoff.write import read_recommendation, read_run, recommended_run
from calibrator.study.config import describe
from calibrator.study.results import SUMMARY, VERDICT
from calibrator.study.store import StudyFolder, open_study, read_record, resolve
from calibrator.verdicts.types import RunVerdict
from reports.numbers import visible
from trainer.config import RunConfig, cumulative_learning_rate
from trainer.names import EngineName, ScheduleName
from trainer.summary import RunSummary

SHORT = {
    "updates": "T",
    "learning_rate": "eta",
    "sync_interval": "S",
    "group_size": "G",
    "epsilon": "epsilon",
    "schedule": "",
    "max_lag": "lag",
    "engine": "",
}


@dataclass(frozen=True)
class Overrides:
    """Options of the command that replace recommended values; None keeps the recommended one."""

    updates: int | None = None
    learning_rate: float | None = None
    sync_interval: int | None = None
    group_size: int | None = None
    epsilon: float | None = None
    schedule: ScheduleName | None = None
    max_lag: int | None = None
    engine: EngineName | None = None


def train_from(
    root: Path, *, out: Path | None, changes: Overrides, seed: int, keep_going: bool, processes: int = 1
) -> ExitCode:
    """Train with the recommended settings of the study in `root` and judge the run.

    `root` may also be a file like trainer.toml: then nothing is known about its settings, and `out` must be given.
    """
    console = Console(stderr=True)
    if root.is_file():
        if out is None:
            raise StudyConfigError(f"{root} is a file of settings: say with --out where the run shall be")
        run = apply(read_run(root), changes, seed)
        return _train(run, out, keep_going=keep_going, console=console, processes=processes)
    study, config = open_study(root)
    advice = read_recommendation(study)
    wanted = recommended_run(config, advice)
    run = apply(read_run(study.trainer_toml), changes, seed)
    folder = out or study.root / "train" / folder_name(changes, seed)
    for warning in warnings(advice, wanted, run, resolve(config)["digests"]):
        console.print(f"warning: {warning}", markup=False, highlight=False, soft_wrap=True)
    return _train(run, folder, keep_going=keep_going, console=console, processes=processes)


def folder_name(changes: Overrides, seed: int) -> str:
    """Default folder of a run: its seed and what was overridden, so that two runs never want the same one."""
    given = {name: value for name, value in asdict(changes).items() if value is not None}
    return "-".join([f"seed-{seed}", *(_named(name, value) for name, value in given.items())])


def _named(name: str, value: float | str) -> str:
    return f"{SHORT[name]}{value}" if isinstance(value, str) else f"{SHORT[name]}{value:g}"


def apply(run: RunConfig, changes: Overrides, seed: int) -> RunConfig:
    """The recommended run with the options on top. Raises StudyConfigError naming the option.

    Another schedule keeps the staleness for which the laws hold: S becomes the largest with at most that mean lag.
    """
    given = {name: value for name, value in asdict(changes).items() if value is not None}
    if changes.schedule == "overlap" and run.schedule == "lockstep" and changes.sync_interval is None:
        given = {**_interval_under_overlap(run), **given}
    if changes.max_lag is not None and (changes.schedule or run.schedule) == "lockstep":
        raise StudyConfigError(
            "--max-lag: in lockstep the largest lag is S - 1; give --schedule overlap as well"
        )
    content: dict[str, Any] = run.model_dump()
    content["seed"] = seed
    for name, value in given.items():
        section = {"group_size": "trainer", "epsilon": "trainer", "max_lag": "overlap"}.get(name)
        (content[section] if section else content)[name] = value
    try:
        return RunConfig.model_validate(content)
    except ValidationError as error:
        raise StudyConfigError(f"options of calibrate train: {describe(error)}") from error


def _interval_under_overlap(run: RunConfig) -> dict[str, int]:
    """S and lag bound with which `overlap` keeps the mean lag of `run`, with one cycle in the queue."""
    interval = interval_within(run.sync_interval, "overlap")
    if interval < 1:
        raise StudyConfigError(
            f"--schedule overlap: S_eff = {run.sync_interval} leaves no room for rollouts made ahead; train in "
            "lockstep, or give --sync-interval for more staleness than was recommended"
        )
    return {"sync_interval": interval, "max_lag": 2 * interval - 1}


def warnings(advice: Recommendation, wanted: RunConfig, run: RunConfig, digests: dict[str, str]) -> list[str]:
    """Where `run` leaves `wanted`, the run that the recommendation is for and valid for."""
    found = []
    effective = effective_interval_of(run.sync_interval, run.lag_bound)
    interval = interval_in(advice.schedule, effective)
    row = _frontier_row(advice, interval, exactly=run.schedule == advice.schedule == "lockstep")
    if row is None:
        known = [entry.sync_interval for entry in advice.frontier]
        found.append(f"S_eff = {effective} was not swept ({known}): nothing is known about it")
    elif run.learning_rate > row.learning_rate:
        found.append(
            f"eta = {run.learning_rate:.2g} is above the {row.learning_rate:.2g} recommended at "
            f"S = {row.sync_interval} under {advice.schedule} (fitted eta_max {row.eta_max.estimate:.2g}, "
            f"90 % interval {row.eta_max.low:.2g} to {row.eta_max.high:.2g})"
        )
    if run.engine != wanted.engine:
        found.append(f"engine = {run.engine!r} was not swept ({wanted.engine!r} was): its numerics differ")
    swept, given = wanted.trainer.model_dump(), run.trainer.model_dump()
    found += [
        f"trainer.{name} = {given[name]} was not swept ({swept[name]} was): the laws may not hold"
        for name in given
        if given[name] != swept[name]
    ]
    if advice.valid_for is None:
        return found
    reached = cumulative_learning_rate(run.updates, peak=run.learning_rate, warmup=run.trainer.warmup)
    if reached > advice.valid_for.longest_cumulative_lr:
        factor = reached / advice.valid_for.longest_cumulative_lr
        found.append(
            f"cumulative learning rate {reached:.2g} is {factor:.2g} times the longest that the sweep saw"
        )
    changed = [name for name in ("model", "task", "code") if digests[name] != getattr(advice.valid_for, name)]
    found += [
        f"the {name} is not the one of the sweep (digest changed): the recommendation may not hold"
        for name in changed
    ]
    return found


def _frontier_row(advice: Recommendation, interval: int, *, exactly: bool) -> FrontierRow | None:
    """The swept interval, or the next larger one, which is stale enough to speak for it."""
    rows = [row for row in advice.frontier if row.sync_interval >= interval]
    row = min(rows, key=lambda row: row.sync_interval, default=None)
    return None if row is not None and exactly and row.sync_interval != interval else row


def _train(run: RunConfig, folder: Path, *, keep_going: bool, console: Console, processes: int) -> ExitCode:
    from calibrator.sweep.trial import claim, execute

    study = StudyFolder(folder)
    claim(folder, run)
    with study.locked():
        if (folder / VERDICT).is_file():
            console.print(
                f"{visible(str(folder))} is finished: nothing is trained; for another run give another --seed or --out",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )
        else:
            console.print(
                f"training {run.trainer.estimator}, {run.schedule}: S = {run.sync_interval}, "
                f"lag at most {run.lag_bound}, "
                f"eta = {run.learning_rate:.3g}, G = {run.trainer.group_size}, epsilon = {run.trainer.epsilon:g}, "
                f"{run.updates} updates, "
                f"seed {run.seed} -> {visible(str(folder))}",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )
            with TrainingView(run, console) as view:
                execute(
                    run,
                    folder,
                    stop_when_certain=not keep_going,
                    watch=view.watch,
                    keep_policy=True,
                    processes=processes,
                )
    again = f"move {folder} away and run the same command again"
    summary = read_record(folder / SUMMARY, RunSummary, remedy=again)
    verdict = read_record(folder / VERDICT, RunVerdict, remedy=again)
    _print_end(folder, verdict, summary)
    return ExitCode.INCONCLUSIVE if verdict.verdict.is_event else ExitCode.RECOMMENDED


def _print_end(folder: Path, verdict: RunVerdict, summary: RunSummary) -> None:
    def shown(value: float | None) -> str:
        return "unknown" if value is None else f"{value:.3f}"

    print(f"verdict   {verdict.verdict.value} after {verdict.updates} updates")
    for evidence in verdict.evidence:
        print(f"          {evidence.sentence}")
    print(f"held-out  {shown(summary.held_out_before)} before, {shown(summary.held_out_after)} after")
    print(f"lag       {staleness(summary)}")
    print(
        f"policy    {visible(str(folder / 'policy'))}{' (of a collapsed run)' if verdict.verdict.is_event else ''}"
    )


def staleness(summary: RunSummary) -> str:
    """How stale rollouts really were, and whether any finished group was thrown away, in a line."""
    said = f"at most {summary.lag_reached} updates, bound {summary.lag_bound}"
    if summary.lag_reached < summary.lag_bound:
        said += " (never reached: generation was the slower side, or the run too short)"
    if summary.paced:
        said += f", generation waited {summary.paced} times for newer weights"
    if summary.discarded_groups:
        said += (
            f"; {summary.discarded_groups} finished groups unused at the early end (mean length "
            f"{summary.discarded_length:.1f}, pass rate {summary.discarded_pass_rate:.2f})"
        )
    return said
