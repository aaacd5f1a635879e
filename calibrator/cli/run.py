"""`calibrate run`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from calibrator.advice.types import Recommendation
from calibrator.cli.delivery import check_places, write_answer
from calibrator.cli.live import Progress
from calibrator.cli.recommend import keep_previous
from calibrator.cli.reconsider import differs
from calibrator.cli.source import Source
from calibrator.errors import ExitCode
from calibrator.study.config import StudyConfig
from calibrator.study.journal import Journal
from calibrator.study.store import StudyFolder, prepare
from calibrator.sweep.checks import check_fit, check_inputs
from calibrator.sweep.executor import Slots, make_slots, run_all
from calibrator.sweep.pace import pace_folders
from calibrator.sweep.rounds import Execute, Sweep, SweepResult
from calibrator.sweep.target import trial_process
from reports.numbers import visible
from trainer.files import disk_errors


def run_study(source: Source) -> ExitCode:
    """Make or continue the sweep, write what it says, print the report. Returns the exit code of the command."""
    config = source.config
    check_inputs(config)
    slots = make_slots(workers=config.resources.workers, gpus_per_trial=config.resources.gpus_per_trial)
    check_fit(config, slots)
    folder = StudyFolder(Path(config.output.folder).expanduser())
    with folder.locked(), disk_errors(folder.root):
        prepare(config, source.text)
        check_places(folder)
        with executing(config, folder, slots) as execute:
            if config.resources.time_batches and (paced := pace_folders(config, folder)):
                execute(paced, stage="pace", spent=0)
            sweep = Sweep(config, folder, Journal(folder.journal), execute)
            outcome = sweep.run()
        conclusion = outcome.conclusion
        write_answer(
            config,
            folder,
            sweep.results,
            conclusion,
            keep=lambda: keep_another_answer(folder, conclusion.recommendation),
        )
        say_if_budget_bound(config, outcome)
    return exit_code(outcome)


def keep_another_answer(folder: StudyFolder, advice: Recommendation | None) -> None:
    """`calibrate recommend` may have answered another question since: what it wrote is kept, and that is said."""
    if advice is None or not differs(folder, advice):
        return
    kept = keep_previous(folder.root)
    print(visible(f"the recommendation is another one than before, which is kept in {kept}"), file=sys.stderr)


@contextmanager
def executing(config: StudyConfig, folder: StudyFolder, slots: Slots) -> Iterator[Execute]:
    """What runs trials of this study on this machine, with progress on stderr."""
    with Progress(config, folder, Console(stderr=True)) as progress:

        def execute(folders: Sequence[Path], *, stage: str, spent: int) -> None:
            progress.stage(stage, folders, spent)
            run_all(folders, slots, target=trial_process, on_tick=progress.tick)

        yield execute


def say_if_budget_bound(config: StudyConfig, outcome: SweepResult) -> None:
    """What was left out, on stderr."""
    if outcome.budget_bound:
        left = (
            "the answer above is partial"
            if outcome.conclusion.recommendation
            else "nothing can be recommended yet"
        )
        Console(stderr=True).print(
            f"max_updates = {config.sweep.max_updates} is spent ({outcome.spent} updates made): {left}; "
            "raise --max-updates and run the same command again to continue",
            markup=False,
            highlight=False,
        )


def exit_code(outcome: SweepResult) -> ExitCode:
    """Exit code of a finished command."""
    if outcome.budget_bound:
        return ExitCode.BUDGET_SPENT
    return ExitCode.RECOMMENDED if outcome.conclusion.recommendation else ExitCode.INCONCLUSIVE
