"""The rollout process of the overlap schedule: generates and scores as far ahead as the lag bound allows."""

from __future__ import annotations

import os
import signal
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection

import torch

from trainer.config import RunConfig
from trainer.engines import make_engine
from trainer.errors import TrainerError
from trainer.loop.clock import Stopwatch
from trainer.loop.messages import Applied, Batch, Failed, Push, decode, encode
from trainer.loop.rollouts import Weights
from trainer.loop.sampling import draw_rollouts
from trainer.loop.shared import Layout, SharedWeights
from trainer.models import load_policy
from trainer.processes import die_with_parent
from trainer.tasks import load_task


@dataclass(frozen=True)
class Assignment:
    """What the process is told at its start."""

    config: str
    """RunConfig as JSON."""
    layout: Layout
    names: tuple[str, ...]
    """Shared memory that weights come through."""
    start: int
    """Update whose rollouts are made first."""
    device: str


def rollout_process(connection: Connection, assignment: Assignment) -> None:
    """Body of the process: every error is told to the learner, and the process ends."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole group; the learner ends this process.
    die_with_parent()
    try:
        _Worker(connection, assignment).run()
    except (EOFError, ConnectionError):  # The learner is gone: nobody waits for rollouts.
        os._exit(0)
    except TrainerError as error:
        connection.send_bytes(encode(Failed(type(error).__name__, str(error))))
    except Exception as error:
        traceback.print_exc()
        connection.send_bytes(encode(Failed("", f"{type(error).__name__}: {error}")))


class _Worker:
    def __init__(self, connection: Connection, assignment: Assignment) -> None:
        self.config = config = RunConfig.model_validate_json(assignment.config)
        torch.set_num_threads(config.cpu_threads)
        self.connection = connection
        self.shared = SharedWeights(assignment.layout, assignment.names)
        self.next = assignment.start
        self.task = load_task(config.task)
        self.policy = load_policy(config.model, device=assignment.device)
        self.engine = make_engine(self.policy, config)
        self.engine.version = -1
        self.clock = Stopwatch()
        self.taken: int | None = None

    def run(self) -> None:
        """Batches in the order of their updates, until the last one; then until the learner hangs up."""
        continues = self.config.overlap.in_flight == "continue"
        try:
            while self.next < self.config.updates:
                self.synchronize()
                count = self.ahead()
                rollouts = draw_rollouts(
                    self.engine,
                    self.task,
                    self.policy,
                    self.config,
                    first=self.next,
                    updates=count,
                    clock=self.clock,
                    refresh=self.refresh if continues else None,
                )
                self.release()
                size = len(rollouts) // count
                for i in range(count):
                    batch = Batch(self.next + i, rollouts.rows(i * size, (i + 1) * size), self.clock.take())
                    self.connection.send_bytes(encode(batch))
                self.next += count
            while True:
                self.connection.recv_bytes()
        finally:
            self.engine.close()

    def ahead(self) -> int:
        """Updates whose rollouts may be drawn now; none while there are no weights yet."""
        if self.engine.version < 0:
            return 0
        return updates_ahead(
            self.next,
            version=self.engine.version,
            sync_interval=self.config.sync_interval,
            lag_bound=self.config.lag_bound,
            total=self.config.updates,
        )

    def synchronize(self) -> None:
        """Take the newest weights; wait for newer ones while the next batch would exceed the lag bound."""
        self.apply(self.refresh())
        while self.ahead() < 1:
            with self.clock.phase("start" if self.engine.version < 0 else "paced"):
                self.connection.poll(None)
            self.apply(self.refresh())

    def apply(self, new: tuple[Weights, int] | None) -> None:
        if new is not None:
            with self.clock.phase("synchronize"):
                self.engine.update_weights(*new)
            self.release()

    def refresh(self) -> tuple[Weights, int] | None:
        """The newest weights that were pushed since the last call, still in shared memory until `release`."""
        self.release()
        push: Push | None = None
        while self.connection.poll(0):
            message = decode(self.connection.recv_bytes())
            if isinstance(message, Push):
                push = message
        if push is None:
            return None
        self.taken = push.version
        return self.shared.read(push.slot), push.version

    def release(self) -> None:
        """Tell the learner that the weights taken last are in use and their slots free."""
        if self.taken is not None:
            self.connection.send_bytes(encode(Applied(self.taken)))
            self.taken = None


def updates_ahead(update: int, *, version: int, sync_interval: int, lag_bound: int, total: int) -> int:
    """How many updates, from `update` on, may be given rollouts of `version`.

    Not beyond the lag bound (a batch is used at its own update, so its lag is known beforehand), the end of the cycle
    (newer weights may be there then), or the end of the run.
    """
    return min(version + lag_bound + 1, update - update % sync_interval + sync_interval, total) - update
