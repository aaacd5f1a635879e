"""Starting the other processes of a run, and what they do."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from trainer.config import RunConfig
from trainer.distributed.team import Team, meeting
from trainer.errors import ConfigError, EnvironmentFailedError, TrainerError
from trainer.processes import CHILD_ENVIRONMENT, PRELOAD, die_with_parent, environment

PATIENCE_AT_END = 10.0
"""Seconds that the processes get to end by themselves."""
LAST_RESORT = 60.0
"""Seconds within which this process must have noticed that another one is gone; NCCL may never notice."""


@dataclass(frozen=True)
class Place:
    """What a process that follows is told at its start."""

    config: str
    """RunConfig as JSON."""
    folder: str
    rank: int
    size: int
    device: str
    store: str
    """File at which the processes meet."""


@contextmanager
def team_of(processes: int, config: RunConfig, folder: Path, device: str) -> Iterator[Team]:
    """This process and `processes` - 1 others, which are started here and follow it.

    Each has a GPU of its own, counted from the first. Raises ConfigError when there are fewer,
    EnvironmentFailedError when one of them does not come up.
    """
    if device.startswith("cuda") and torch.cuda.device_count() < processes:
        raise ConfigError(
            f"--processes {processes}: this machine shows {torch.cuda.device_count()} GPUs, and each needs one"
        )
    with tempfile.TemporaryDirectory() as private:
        store = str(Path(private) / "store")
        ranks = range(1, processes)
        others: list[BaseProcess] = []
        done = threading.Event()
        try:
            places = [
                Place(config.model_dump_json(), str(folder), rank, processes, device_of(rank, device), store)
                for rank in ranks
            ]
            others += _started(places)
            threading.Thread(target=_watch, args=(others, done), daemon=True).start()
            with meeting(0, processes, device_of(0, device), store=store) as team:
                yield team
        except BaseException:
            done.set()
            for process in others:  # who may wait for an order that never comes
                process.terminate()
            raise
        finally:
            done.set()
            _end(others)


def device_of(rank: int, device: str) -> str:
    """Device of the process of this rank on its machine."""
    return f"cuda:{rank}" if device.startswith("cuda") else device


def follower_process(place: Place, ready: Connection) -> None:
    """Body of a process that does what the leader announces. What goes wrong is the leader's to tell."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole group; the leader ends this process.
    die_with_parent()
    ready.send_bytes(b"up")
    try:
        with meeting(place.rank, place.size, place.device, store=place.store) as team:
            follow(RunConfig.model_validate_json(place.config), Path(place.folder), team)
    except TrainerError:
        os._exit(1)


def follow(config: RunConfig, folder: Path, team: Team) -> None:
    """Hold a share of the run's weights, from the last checkpoint on, until the leader has finished."""
    from trainer.distributed.sharded import ShardedLearner
    from trainer.loop.session import restored_learner

    torch.set_num_threads(config.cpu_threads)
    learner, _ = restored_learner(config, folder, team.device, team)
    if isinstance(learner, ShardedLearner):
        learner.follow()


def _started(places: Sequence[Place]) -> list[BaseProcess]:
    """As the rollout process of the overlap schedule is: CUDA does not survive a fork. Returns when all are up."""
    on_gpu = places[0].device.startswith("cuda")
    if not on_gpu:
        multiprocessing.set_forkserver_preload(PRELOAD)
    context = multiprocessing.get_context("spawn" if on_gpu else "forkserver")
    processes: list[BaseProcess] = []
    ends: list[Connection] = []
    for place in places:
        mine, theirs = multiprocessing.Pipe(duplex=False)
        process: BaseProcess = context.Process(target=follower_process, args=(place, theirs))  # type: ignore[attr-defined]
        with environment(CHILD_ENVIRONMENT):
            process.start()
        theirs.close()
        processes.append(process)
        ends.append(mine)
    for process, mine in zip(processes, ends, strict=True):
        try:
            mine.recv_bytes()
        except EOFError as error:
            process.join()
            _end(processes)
            raise EnvironmentFailedError(
                f"a process of the run did not come up (exit code {process.exitcode}); its reason stands above"
            ) from error
    return processes


def _watch(others: Sequence[BaseProcess], done: threading.Event) -> None:
    """End all as soon as one is gone: then nobody waits for what will never come."""
    wait([process.sentinel for process in others])
    if done.is_set():
        return
    for process in others:
        process.terminate()
    if not done.wait(LAST_RESORT):
        print(
            "error: a process of the run is gone: run the same command again, it continues", file=sys.stderr
        )
        os._exit(5)


def _end(others: Sequence[BaseProcess]) -> None:
    for process in others:
        process.join(PATIENCE_AT_END)
        if process.is_alive():
            process.kill()
            process.join()
