"""One trial: a real training run in its folder, judged while it runs. The only door into the trainer's loop."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from calibrator.errors import CalibratorError
from calibrator.nested import changes
from calibrator.runlogs.own import curve_from_rows, read_metrics
from calibrator.study.provenance import task_digest
from calibrator.study.results import CONFIG, ERROR, LOG, SUMMARY, UNTOLD, VERDICT
from calibrator.study.store import read_json, write_json
from calibrator.sweep.judging import trial_settings
from calibrator.verdicts.judge import judge, judge_so_far
from calibrator.verdicts.types import RunVerdict
from trainer.checkpoint import remove_checkpoints
from trainer.config import RunConfig
from trainer.errors import ConfigError, EnvironmentFailedError, TrainerError
from trainer.files import disk_errors
from trainer.loop.recorder import METRICS
from trainer.loop.session import STOPPED
from trainer.loop.train import train
from trainer.machine import visible_gpus
from trainer.metrics import MetricsRow
from trainer.models.memory import memory_errors, processes_needed
from trainer.processes import die_with_parent
from trainer.summary import RunSummary

INPUTS = "inputs.json"
FAILED = 3
"""Exit code of a trial process that left an error.json."""

Watch = Callable[[Sequence[MetricsRow]], None]


def execute(
    config: RunConfig,
    folder: Path,
    *,
    stop_when_certain: bool = True,
    watch: Watch | None = None,
    keep_policy: bool = False,
    processes: int = 1,
) -> tuple[RunSummary, RunVerdict]:
    """Make the run, or go on with it; end it as soon as it has certainly collapsed; judge it; write the verdict.

    The verdict is a function of the metrics alone, so an interrupted run and an uninterrupted one agree.
    """
    settings = trial_settings(config)

    def on_row(rows: Sequence[MetricsRow]) -> bool:
        if watch is not None:
            watch(rows)
        at_probe = "probe_version" in rows[-1]
        return stop_when_certain and at_probe and judge_so_far(curve_from_rows(rows), settings) is not None

    with memory_errors(config):
        summary = train(
            config,
            folder,
            on_row=on_row,
            policy_folder=folder / "policy" if keep_policy else None,
            processes=processes,
        )
    ended = "stopped" if summary.ended == STOPPED else "finished"
    verdict = judge(read_metrics(folder / METRICS), settings.model_copy(update={"ended": ended}))
    with disk_errors(folder):
        write_json(folder / SUMMARY, summary.model_dump(mode="json"))
        write_json(folder / VERDICT, verdict.model_dump(mode="json"))
        remove_checkpoints(folder)
    return summary, verdict


def trial_process(folder: str) -> None:
    """Body of a trial's process. What goes wrong on purpose is left in error.json for the parent to say."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole group; the parent ends its trials.
    die_with_parent()
    path = Path(folder)
    (path / ERROR).unlink(missing_ok=True)
    _print_to(path / LOG)
    try:
        config = RunConfig.model_validate_json((path / CONFIG).read_bytes())
        execute(config, path, processes=processes_needed(config, visible_gpus()))
    except (TrainerError, CalibratorError) as error:
        _leave_error(path, error, environment=isinstance(error, EnvironmentFailedError))
    except OSError as error:
        _leave_error(path, error, environment=True)


def _print_to(log: Path) -> None:
    """Send what is printed from here on to a file: several trials at once would garble the terminal."""
    with suppress(OSError), log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


def claim(folder: Path, config: RunConfig) -> None:
    """Make `folder` the folder of this run. Raises ConfigError when it holds another run, or anything else.

    A run that made no update yet, for instance since its config was wrong, may be replaced.
    """
    path = folder / CONFIG
    if path.exists():
        try:
            before = RunConfig.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise ConfigError(f"{folder} holds another run, or a model; choose another folder") from error
        if (folder / METRICS).is_file() and (folder / METRICS).stat().st_size > 0:
            _check_same_run(folder, before, config)
        with disk_errors(folder):
            write_json(path, config.model_dump(mode="json"))
            write_json(folder / INPUTS, _inputs(config))
        return
    strangers = sorted(entry.name for entry in folder.glob("[!.]*"))
    if strangers:
        raise ConfigError(f"{folder} is not empty ({', '.join(strangers[:3])}); choose another folder")
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_json(path, config.model_dump(mode="json"))
        write_json(folder / INPUTS, _inputs(config))


def _inputs(config: RunConfig) -> dict[str, str]:
    """What a run depends on beside its config, as far as it can change behind one: the task's data and code."""
    return {"task": task_digest(config.task)}


def _check_same_run(folder: Path, before: RunConfig, config: RunConfig) -> None:
    if before.digest() != config.digest():
        found = changes(before.model_dump(mode="json"), config.model_dump(mode="json"))
        differing = [f"{change.key} = {change.before!r} there" for change in found]
        raise ConfigError(
            f"{folder} holds another run ({', '.join(differing[:3])}); choose another folder, or delete it"
        )
    if (folder / INPUTS).is_file() and read_json(folder / INPUTS) != _inputs(config):
        raise ConfigError(
            f"the task's data or code is not what the run in {folder} began with; choose another folder, or delete it"
        )


def _leave_error(folder: Path, error: Exception, *, environment: bool) -> None:
    try:
        write_json(
            folder / ERROR, {"message": str(error) or type(error).__name__, "environment": environment}
        )
    except OSError:  # The disk that broke the run may refuse this file, too; the exit code still tells.
        os._exit(UNTOLD)
    os._exit(FAILED)
