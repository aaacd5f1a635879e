"""Trials as separate processes: on all cores of a CPU machine, or each on GPUs of its own.

Without GPUs trials fork from a server process that has torch and transformers loaded, since importing them takes
seconds. With GPUs each trial starts anew: CUDA does not survive a fork, and a trial must see its own devices only.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from calibrator.errors import CalibratorError, MachineError, StudyConfigError
from calibrator.study.provenance import cores, gpu_ids
from calibrator.study.results import ERROR, LOG, UNTOLD, VERDICT
from calibrator.study.store import read_json
from trainer.processes import CHILD_ENVIRONMENT, PRELOAD, environment

TICK = 0.5
"""Seconds between two looks at running trials."""

Tick = Callable[[Sequence[Path], Sequence[Path]], None]
"""Called with the folders of running and of just finished trials."""


@dataclass(frozen=True)
class Slots:
    """Where trials run: one slot a trial at a time; the ids are empty on a CPU."""

    devices: tuple[tuple[str, ...], ...]


def make_slots(*, workers: int | None, gpus_per_trial: int | None) -> Slots:
    """Slots of this machine. Raises StudyConfigError when a trial asks for more GPUs than there are."""
    ids = gpu_ids()
    per_trial = gpus_per_trial if gpus_per_trial is not None else min(1, len(ids))
    if per_trial == 0:
        return Slots(((),) * (workers or cores()))
    if per_trial > len(ids):
        raise StudyConfigError(
            f"resources.gpus_per_trial = {per_trial}, but this machine shows {len(ids)} GPUs: "
            "lower it, or set 0 for the CPU"
        )
    groups = [tuple(ids[i : i + per_trial]) for i in range(0, len(ids) - per_trial + 1, per_trial)]
    return Slots(tuple(groups[: workers or len(groups)]))


def run_all(folders: Sequence[Path], slots: Slots, *, target: Callable[[str], None], on_tick: Tick) -> None:
    """Run `target(folder)` for each folder that has no verdict yet; returns when all have one.

    Raises the error that a trial left, or MachineError when its process died; the other trials are ended first
    and continue from their checkpoints when the command is run again.
    """
    waiting = [folder for folder in folders if not (folder / VERDICT).is_file()]
    free = list(range(len(slots.devices)))
    running: dict[BaseProcess, tuple[Path, int]] = {}
    try:
        while waiting or running:
            while waiting and free:
                slot = free.pop(0)
                folder = waiting.pop(0)
                running[start_process(target, folder, slots.devices[slot])] = (folder, slot)
            wait([process.sentinel for process in running], timeout=TICK)
            ended = [process for process in running if not process.is_alive()]
            done = []
            for process in ended:
                folder, slot = running.pop(process)
                process.join()
                _check(process, folder)
                done.append(folder)
                free.append(slot)
            on_tick([folder for folder, _ in running.values()], done)
    finally:
        end_processes(list(running))


def start_process(target: Callable[[str], None], folder: Path, devices: tuple[str, ...]) -> BaseProcess:
    """Start one trial on its devices."""
    process: BaseProcess
    wanted = _trial_environment(devices)
    if devices:
        process = multiprocessing.get_context("spawn").Process(target=target, args=(str(folder),))
    else:
        multiprocessing.set_forkserver_preload([*PRELOAD, "calibrator.sweep.trial"])
        context = multiprocessing.get_context("forkserver")
        process = context.Process(target=_in_environment, args=(wanted, target, str(folder)))
    try:
        with environment(wanted):
            process.start()
    except (EOFError, ConnectionError) as error:
        raise MachineError(
            "the process that starts trials was killed (out of memory?): run the same command again, it continues"
        ) from error
    return process


def _in_environment(wanted: dict[str, str], target: Callable[[str], None], folder: str) -> None:
    """A fork has the environment in which the server of forks was started, perhaps by somebody else."""
    os.environ.update(wanted)
    target(folder)


def end_processes(processes: Sequence[BaseProcess], *, patience: float = 5.0) -> None:
    """Ask, wait, kill. Trials hold no state that a kill could tear."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + patience
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()


def _trial_environment(devices: tuple[str, ...]) -> dict[str, str]:
    if devices:
        return {**CHILD_ENVIRONMENT, "CUDA_VISIBLE_DEVICES": ",".join(devices)}
    return {**CHILD_ENVIRONMENT, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def _check(process: BaseProcess, folder: Path) -> None:
    """Raise what a trial left behind, if anything."""
    if (folder / VERDICT).is_file():
        return
    trial = f"trial {folder.name}"
    if (folder / ERROR).exists():
        error = read_json(folder / ERROR)
        raise (MachineError if error["environment"] else CalibratorError)(f"{trial}: {error['message']}")
    code = process.exitcode or 0
    if code < 0:
        why = " (out of memory?)" if -code == signal.SIGKILL else ""
        raise MachineError(
            f"{trial} was killed by signal {-code}{why}: run the same command again, it continues; "
            "lower resources.workers if it happens again"
        )
    if code == UNTOLD:
        raise MachineError(
            f"{trial} failed and could not write why: no space left in {folder}, or not writable?"
        )
    raise MachineError(
        f"{trial} ended with exit code {code} and no verdict; {folder / LOG} holds what it printed"
    )
