"""The rollout process of the overlap schedule: generates and scores as far ahead as the lag bound allows."""

from __future__ import annotations

import copy
import os
import signal
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from trainer.config import RunConfig
from trainer.engines import make_engine
from trainer.errors import TrainerError
from trainer.loop.allocator import keep_freed_memory
from trainer.loop.clock import Stopwatch
from trainer.loop.messages import Applied, Batch, Failed, Push, decode, encode
from trainer.loop.mismatch import fresh_behaviour
from trainer.loop.rollouts import Rollouts, Weights
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
    # Ctrl-C reaches the whole group; the learner ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent()
    try:
        _Worker(connection, assignment).run()
    except (EOFError, ConnectionError):  # The learner is gone: nobody waits for rollouts.
        os._exit(0)
    except TrainerError as error:
        connection.send_bytes(encode(Failed(type(error).__name__, str(error))))
    except BaseException as error:  # The user's own task may raise anything.
        traceback.print_exc()
        connection.send_bytes(encode(Failed("", f"{type(error).__name__}: {error}")))


class _Worker:
    def __init__(self, connection: Connection, assignment: Assignment) -> None:
        self.config = config = RunConfig.model_validate_json(assignment.config)
        torch.set_num_threads(config.cpu_threads)
        keep_freed_memory()
        self.connection = connection
        self.shared = SharedWeights(assignment.layout, assignment.names)
        self.next = assignment.start
        self.task = load_task(config.task)
        lora = config.trainer.lora
        self.policy = load_policy(config.model, device=assignment.device, lora=lora, seed=config.seed)
        if assignment.device == "cpu":
            # Weights mapped from a file lie anywhere; a copy lies as that of a lockstep engine, and sums up the same.
            self.policy.model = copy.deepcopy(self.policy.model)
        else:
            torch.cuda.set_device(assignment.device)
        # Casts to bfloat16 are only kept from one token to the next for weights that could have a gradient.
        self.policy.model.requires_grad_(requires_grad=config.trainer.dtype == "bfloat16")
        self.engine = make_engine(self.policy, config, share_weights=config.engine == "hf")
        self.engine.version = -1
        self.clock = Stopwatch()
        self.taken: int | None = None

    def run(self) -> None:
        """Batches in the order of their updates, until the last one; then until the learner hangs up."""
        try:
            while self.next < self.config.updates:
                self.synchronize()
                count = self.ahead()
                rollouts, measured = self.draw(count)
                size = len(rollouts) // count
                seconds = {name: value for name, value in self.clock.take().items() if name != "probe"}
                for i in range(count):
                    batch = Batch(self.next + i, rollouts.rows(i * size, (i + 1) * size), seconds, measured)
                    self.connection.send_bytes(encode(batch))
                    seconds, measured = {}, {}
                self.next += count
            while True:  # Nothing is left to make; the learner still pushes, and waits for slots.
                self.connection.poll(None)
                self.refresh()
                self.release()
        finally:
            self.engine.close()

    def draw(self, updates: int) -> tuple[Rollouts, dict[str, Any]]:
        """Rollouts for the next `updates` updates, and what was measured on them."""
        version = self.engine.version
        rollouts = draw_rollouts(
            self.engine,
            self.task,
            self.policy,
            self.config,
            first=self.next,
            updates=updates,
            clock=self.clock,
            refresh=self.refresh if self.config.overlap.in_flight == "continue" else None,
        )
        self.release()
        if self.engine.version != version:
            return rollouts, {}  # of mixed versions: no single set of weights could recompute their logprobs
        rollouts, measured = fresh_behaviour(
            self.policy, rollouts, self.config, first=self.next, clock=self.clock
        )
        return rollouts, dict(measured)

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
            with self.clock.phase("load"):
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
        weights = self.shared.read(push.slot)
        if self.config.engine != "hf":  # which works on the policy itself
            own = dict(self.policy.model.named_parameters())
            with torch.no_grad():
                for name, weight in weights.items():
                    own[name].copy_(weight)
        return weights, push.version

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
