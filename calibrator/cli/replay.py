"""`calibrate replay`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from calibrator.cli.console import AnswerConsole
from calibrator.cli.printing import print_record
from calibrator.errors import NothingToSayError
from calibrator.laws.fit import design_posterior
from calibrator.laws.observations import is_event
from calibrator.study.config import StudyConfig
from calibrator.study.results import TrialResult, load_results
from calibrator.study.store import open_study
from calibrator.sweep.design import DesignSpace, target_cumulative_lr
from calibrator.sweep.judging import trial_settings
from calibrator.sweep.replay import Replay, ReplayResult, replayed_stop, summary_sentences
from calibrator.sweep.rounds import design_space
from calibrator.verdicts.judge import judge
from reports.numbers import visible

COLUMNS = ("run", "updates", "verdict", "would end at", "changed to")


def print_replay(root: Path, *, as_json: bool) -> None:
    """Ask of every finished curve whether an early end would have changed its verdict.

    Raises NothingToSayError while no trial is finished.
    """
    study, config = open_study(root)
    results = load_results(study)
    if not results:
        raise NothingToSayError(f"{root} has no finished trial yet; next: the same `calibrate run` again")
    answer = replay_study(config, results)
    if as_json:
        print_record(content(answer))
        return
    console = AnswerConsole()
    console.print(_table(answer))
    for line in [*summary_sentences(answer), *_about_targets(answer)]:
        console.print(visible(line), markup=False, highlight=False, soft_wrap=True)


def replay_study(config: StudyConfig, results: Sequence[TrialResult]) -> ReplayResult:
    """Replay all trials; survivors are settled by what all runs of their estimator say about B."""
    names: list[str] = sorted({result.config.trainer.estimator for result in results})
    spaces = {name: design_space(config, name) for name in names}
    targets = {name: _target(name, results, spaces[name]) for name in names}
    return ReplayResult(
        runs=[_replay(result, spaces, targets) for result in results], stopping_cumulative_lr=targets
    )


def content(answer: ReplayResult) -> dict[str, Any]:
    """What `--json` prints: the record, with what follows from it written out."""
    runs = [
        {
            **run.model_dump(mode="json"),
            "ended_early": run.ended_early,
            "changed": None if run.unknown else run.changed,
            "saved": run.saved,
        }
        for run in answer.runs
    ]
    return {
        **answer.model_dump(mode="json"),
        "runs": runs,
        "updates": sum(run.updates for run in answer.runs),
        "saved": sum(run.saved for run in answer.runs),
        "changed": [run.run for run in answer.runs if run.changed],
        "unknown": [run.run for run in answer.runs if run.unknown],
        "sentences": summary_sentences(answer),
    }


def _target(estimator: str, results: Sequence[TrialResult], space: DesignSpace) -> float | None:
    runs = [result.run() for result in results if result.config.trainer.estimator == estimator]
    if not any(is_event(run) for run in runs):
        return None
    posterior = design_posterior(runs)
    return None if posterior is None else float(f"{target_cumulative_lr(posterior, runs, space):.6g}")


def _replay(result: TrialResult, spaces: dict[str, DesignSpace], targets: dict[str, float | None]) -> Replay:
    config, settings = result.config, trial_settings(result.config)
    estimator, curve = config.trainer.estimator, result.curve
    ended = "stopped" if curve.updates < config.updates else "finished"
    return Replay(
        run=result.name,
        trial=result.number,
        estimator=estimator,
        sync_interval=config.sync_interval,
        learning_rate=config.learning_rate,
        planned=config.updates,
        updates=curve.updates,
        verdict=judge(curve, settings.model_copy(update={"ended": ended})).verdict,
        stop=replayed_stop(
            curve,
            settings,
            learning_rate=config.learning_rate,
            space=spaces[estimator],
            target=targets[estimator],
        ),
    )


def _table(answer: ReplayResult) -> Table:
    table = Table(title="Finished curves, cut and judged anew", title_justify="left", box=box.SIMPLE_HEAD)
    for name in COLUMNS:
        table.add_column(name, justify="right" if name == "updates" else "left", no_wrap=True)
    for run in answer.runs:
        table.add_row(*_cells(run))
    return table


def _cells(run: Replay) -> list[str]:
    made = f"{run.updates} of {run.planned}" if run.ended_early else str(run.updates)
    end = "unknown" if run.ended_early else "-"
    if run.stop is not None:
        end = f"{run.stop.updates} {run.stop.rule}"
    then = run.stop.verdict.value if run.stop is not None and run.changed else ""
    return [visible(run.run), made, run.verdict.value, end, then]


def _about_targets(answer: ReplayResult) -> list[str]:
    return [
        f"{name}: a run is settled at L = {target:.2g}, by which prone runs have very likely collapsed."
        if target is not None
        else f"{name}: nothing collapsed, so no survivor is settled."
        for name, target in answer.stopping_cumulative_lr.items()
    ]
