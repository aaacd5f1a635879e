"""`calibrate plan`."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from calibrator.advice.cost import CostModel
from calibrator.cli.console import AnswerConsole
from calibrator.cli.source import Source
from calibrator.handoff.conclude import embedded_cost
from calibrator.study.config import StudyConfig
from calibrator.study.provenance import cores, gpu_count
from calibrator.study.store import StudyFolder, read_record
from calibrator.sweep.checks import check_fit, check_inputs
from calibrator.sweep.estimate import Estimate, estimate, total_updates
from calibrator.sweep.executor import make_slots
from calibrator.wording import plural
from reports.numbers import seconds, visible


def print_plan(source: Source) -> None:
    """The first round run by run, then totals; bounds and assumptions are named as such."""
    config = source.config
    check_inputs(config)
    needs = estimate(config)
    slots = make_slots(workers=config.resources.workers, gpus_per_trial=config.resources.gpus_per_trial)
    check_fit(config, slots)
    console = AnswerConsole()
    console.print(_runs(needs))
    workers = len(slots.devices)
    lines = [
        (
            "first round",
            f"{plural(len(needs.first_round), 'run')}, {total_updates(needs.first_round)} updates at full length",
        ),
        (
            "whole study at most",
            f"{plural(needs.runs_at_most, 'run')}, {needs.updates_at_most} updates; a run that collapsed ends early",
        ),
        ("time at most", _time(config, needs, workers)),
        ("response tokens at most", f"{needs.tokens_at_most:.3g}"),
        ("model", f"{needs.parameters:,} parameters"),
        (
            "memory of one trial",
            f"about {needs.memory.total / 2**30:.2g} GiB, {workers} at a time; most of it "
            + ", ".join(f"{name} {size / 2**30:.2g}" for name, size in needs.memory.largest[:3]),
        ),
        ("machine", f"{cores()} cores, {gpu_count()} GPUs"),
        ("study folder", visible(config.output.folder)),
    ]
    for name, text in lines:
        console.print(f"{name:<24} {text}", markup=False, highlight=False, soft_wrap=True)


def _time(config: StudyConfig, needs: Estimate, workers: int) -> str:
    """By the seconds that the study measured before, or by the fixed ones of the embedded default."""
    study = StudyFolder(Path(config.output.folder).expanduser())
    if config.is_embedded_default:
        cost = embedded_cost()
    elif study.cost.is_file():
        cost = read_record(study.cost, CostModel)
    else:
        return "not known before the first trials have run; `calibrate run` then shows what is left"
    update = max(cost.seconds_per_update(S) for S in config.sweep.sync_intervals)
    return (
        f"{seconds(needs.updates_at_most * update / workers)} at {seconds(update)} an update ({cost.origin}) with "
        f"{plural(workers, 'worker')}, beside starting trials"
    )


def _runs(needs: Estimate) -> Table:
    table = Table(title="First round; later rounds are planned from its outcome", title_justify="left")
    for name in ("estimator", "S", "eta", "seed", "updates"):
        table.add_column(name, justify="left" if name == "estimator" else "right")
    for run in needs.first_round:
        table.add_row(
            run.estimator, str(run.sync_interval), f"{run.learning_rate:.2g}", str(run.seed), str(run.updates)
        )
    return table
