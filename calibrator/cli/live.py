"""Progress of a sweep on stderr: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from calibrator.cli.training import clock, redraws, time_left
from calibrator.errors import CorruptStudyError
from calibrator.runlogs.curve import Curve
from calibrator.runlogs.own import curve_from_rows, read_metrics
from calibrator.study.config import StudyConfig
from calibrator.study.results import CONFIG, ERROR, LOG, METRICS, TrialResult, load_result
from calibrator.study.store import StudyFolder, read_json
from calibrator.verdicts.judge import JudgeSettings, judge
from calibrator.verdicts.types import Verdict
from calibrator.wording import plural
from reports.numbers import visible
from trainer.config import RunConfig
from trainer.tasks import load_task

STYLES = {
    Verdict.STABLE: "green",
    Verdict.COLLAPSED: "red",
    Verdict.DIVERGED: "magenta",
    Verdict.DEGRADED: "yellow",
}
SHOWN = 24
"""Most trials in the live table; older ones scroll away."""
COLUMNS = ("trial", "estimator", "S", "eta", "update", "probe reward", "verdict")
EVERY = 2.0
"""Seconds between two looks at the logs: reading and judging them takes time from the trials."""


class Progress:
    """Shows per trial S, eta, reward and the verdict so far, and the updates spent and left."""

    def __init__(self, config: StudyConfig, study: StudyFolder, console: Console) -> None:
        self._limit, self._rounds = config.sweep.max_updates, config.sweep.rounds
        self._floor = load_task(config.task).reward_floor
        self._drawn = 0.0
        self._start = self._stage_start = time.monotonic()
        self._made_before: int | None = None
        """Updates of the stage's runs when this command took it up."""
        self._study, self._console = study, console
        self._live = Live(console=console, refresh_per_second=4, transient=True) if redraws(console) else None
        self._stage, self._spent = "", 0
        self._planned: list[Path] = []
        self._finished: dict[Path, TrialResult] = {}
        self._rows: dict[Path, list[str | Text]] = {}

    def __enter__(self) -> Progress:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def stage(self, name: str, folders: Sequence[Path], spent: int) -> None:
        """A stage begins; trials that are finished already are not run again."""
        self._stage, self._spent, self._planned = name, spent, list(folders)
        self._stage_start, self._made_before = time.monotonic(), None
        for folder in folders:
            self._note(folder)
        self._say(
            f"{name}: {plural(len(folders), 'run')}, {self._remaining()} updates planned, {spent} spent"
        )

    def tick(self, running: Sequence[Path], done: Sequence[Path]) -> None:
        """Called about twice a second."""
        for folder in done:
            result = self._note(folder)
            if result:
                self._say(_line(result))
        if self._live and time.monotonic() - self._drawn > EVERY:
            self._live.update(self._table(running))
            self._drawn = time.monotonic()

    def _note(self, folder: Path) -> TrialResult | None:
        """Keep a finished trial and its row."""
        result = load_result(folder)
        if result is not None:
            self._finished[folder], self._rows[folder] = result, finished_row(result)
        return result

    def _say(self, text: str) -> None:
        if self._live is None:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _remaining(self) -> int:
        """Updates that this stage still plans."""
        return sum(_config(folder).updates for folder in self._planned if folder not in self._finished)

    def _table(self, running: Sequence[Path]) -> Table:
        made = sum(r.verdict.updates for f, r in self._finished.items() if f in self._planned)
        curves = {folder: curve_so_far(folder) for folder in running}
        spent = self._spent + made + sum(curve.updates for curve in curves.values())
        planned = self._remaining() - sum(curve.updates for curve in curves.values())
        left = f"{self._limit - spent} left" if self._limit else f"at most {planned} left in this stage"
        done = f"{sum(folder in self._finished for folder in self._planned)} of {plural(len(self._planned), 'run')}"
        title = f"{stage_title(self._stage, self._rounds)}: {done}, {spent} updates spent, {left}\n"
        table = Table(title=title + self._times(spent - self._spent, planned), title_justify="left")
        for name in COLUMNS:
            table.add_column(name, justify="left" if name in ("estimator", "verdict") else "right")
        shown = sorted([*self._finished, *running], key=lambda folder: int(folder.name))
        for folder in shown[-SHOWN:]:
            table.add_row(*(self._rows.get(folder) or running_row(folder, curves[folder], self._floor)))
        return table

    def _times(self, made: int, planned: int) -> str:
        """How long the command runs, and how long this stage still takes if no run of it ends early."""
        now = time.monotonic()
        if self._made_before is None:
            self._made_before = made
        left = time_left(now - self._stage_start, made - self._made_before, planned)
        return f"{clock(now - self._start)} elapsed, {left} in this stage"


def stage_title(stage: str, rounds: int) -> str:
    """`round 2 of at most 4`."""
    return f"{stage.replace('-', ' ')} of at most {rounds}" if stage.startswith("round-") else stage


def _config(folder: Path) -> RunConfig:
    return RunConfig.model_validate(read_json(folder / CONFIG))


def curve_so_far(folder: Path) -> Curve:
    """The log so far; a trial that just started may have none."""
    try:
        return read_metrics(folder / METRICS)
    except (CorruptStudyError, OSError):  # What is shown on the way must not end the sweep.
        return curve_from_rows([])


def _cells(config: RunConfig, number: str) -> list[str | Text]:
    return [number, config.trainer.estimator, str(config.sync_interval), f"{config.learning_rate:.2g}"]


def finished_row(result: TrialResult) -> list[str | Text]:
    """Cells of a judged trial."""
    verdict = result.verdict
    word = Text(verdict.verdict.value, style=STYLES.get(verdict.verdict, "bright_black"))
    return [
        *_cells(result.config, str(result.number)),
        str(verdict.updates),
        _reward(curve_so_far(result.folder)),
        word,
    ]


def running_row(folder: Path, curve: Curve, floor: float) -> list[str | Text]:
    """Cells of a trial that has no verdict yet: what it would be judged if it ended here."""
    config = _config(folder)
    settings = JudgeSettings(reward_floor=floor, sync_interval=config.sync_interval)
    verdict = judge(curve, settings).verdict
    return [
        *_cells(config, folder.name),
        f"{curve.updates}/{config.updates}",
        _reward(curve),
        Text(
            f"{verdict.value} so far" if curve.updates else _before_updates(folder),
            style=STYLES.get(verdict, "bright_black"),
        ),
    ]


def _before_updates(folder: Path) -> str:
    """Where a trial without updates stands; its process makes the log as soon as it starts."""
    if (folder / ERROR).is_file():
        return f"failed: {visible(str(read_json(folder / ERROR).get('message')))}"
    return "starting" if (folder / LOG).is_file() else "waiting"


def _reward(curve: Curve) -> str:
    """Last probe, or the last rollouts where there is none."""
    series = curve.probes if curve.probes is not None and len(curve.probes.value) else curve.rewards
    return f"{series.value[-1]:.2f}" if len(series.value) else "-"


def _line(result: TrialResult) -> str:
    config, verdict = result.config, result.verdict
    onset = verdict.onset_updates
    when = f", onset in ({onset[0]:g}, {onset[1]:g}]" if onset else ""
    return (
        f"trial {result.number}: {config.trainer.estimator} S={config.sync_interval} eta={config.learning_rate:.2g} "
        f"{verdict.verdict.value} after {verdict.updates} updates{when}"
    )
