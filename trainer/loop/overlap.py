"""The asynchronous schedule: a rollout process works ahead of the learner, within a bound on the lag."""

from __future__ import annotations

import multiprocessing
import queue
import signal
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import cast

import torch

from trainer.config import RunConfig
from trainer.errors import EnvironmentFailedError, NonFiniteError, TrainerError
from trainer.loop.messages import Applied, Batch, Failed, Push, decode, encode
from trainer.loop.rollouts import Weights
from trainer.loop.session import FINISHED, Session
from trainer.loop.shared import SLOTS, Layout, SharedWeights
from trainer.loop.worker import Assignment, rollout_process
from trainer.metrics import MetricsRow
from trainer.models import trained_weights
from trainer.processes import CHILD_ENVIRONMENT, PRELOAD, environment

PATIENCE_AT_END = 5.0
"""Seconds that the rollout process gets to end by itself."""


def overlap(session: Session) -> tuple[int, str]:
    """Learn from batches in order while the next ones are made. Returns the updates made and how the run ended.

    Raises what `RolloutProcess.next` raises, after a checkpoint of the last update.
    """
    config = session.config
    update = session.start
    with RolloutProcess(session) as rollouts:
        while update < config.updates:
            if update % config.sync_interval == 0 or update == session.start:
                session.checkpoint_when_due(update)
            try:
                batch = _receive(session, rollouts, update)
            except NonFiniteError:
                return update + 1, session.undrawable(update, version=rollouts.applied_version)
            session.recorder.clock.add(batch.seconds)
            measured = cast("MetricsRow", batch.measured)
            ended = session.update(update, batch.rollouts.to(session.device), measured)
            update += 1
            if ended is not None:
                session.discarded = [unused.rollouts for unused in rollouts.unused()]
                return update, ended
    return update, FINISHED


def _receive(session: Session, rollouts: RolloutProcess, update: int) -> Batch:
    """Push weights when they are due, then wait for the batch of `update`."""
    clock = session.recorder.clock
    try:
        if update % session.config.sync_interval == 0 or update == session.start:
            with clock.phase("synchronize"):
                rollouts.push(session.weights, update)
        with clock.phase("wait"):
            return rollouts.next(update)
    except NonFiniteError:  # The run ends here for good.
        raise
    except TrainerError:
        if update > session.start:
            session.checkpoint(update)
        raise


class RolloutProcess:
    """The learner's end: pushes weights, receives batches, notices when the process dies."""

    def __init__(self, session: Session) -> None:
        config = session.config
        self._config = config
        layout = Layout.of(trained_weights(session.policy.model), _transport(config))
        self._shared = SharedWeights(layout)
        self._in_slot = [-1] * SLOTS
        self._applied = threading.Condition()
        self.applied_version = -1
        """Newest version that the rollout process has taken over."""
        self._batches: queue.Queue[Batch | Exception | None] = queue.Queue(maxsize=config.lag_bound + 2)
        self._connection, theirs = multiprocessing.Pipe()
        assignment = Assignment(
            config=config.model_dump_json(),
            layout=layout,
            names=self._shared.names,
            start=session.start,
            device=rollout_device(session.device, session.processes),
        )
        self._process = _process(theirs, assignment)
        with environment(CHILD_ENVIRONMENT):
            self._process.start()
        theirs.close()
        self._receiver = threading.Thread(target=self._receive, daemon=True)
        self._receiver.start()

    def __enter__(self) -> RolloutProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process and free the shared memory."""
        self._process.terminate()
        self._process.join(PATIENCE_AT_END)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._receiver.join(PATIENCE_AT_END)
        self._connection.close()
        self._shared.close()

    def push(self, weights: Weights, version: int) -> None:
        """Hand over `weights`; returns as soon as they are copied. Raises like `next`."""
        slot = self._in_slot.index(min(self._in_slot))
        with self._applied:
            free = self._applied.wait_for(
                lambda: self.applied_version >= self._in_slot[slot] or not self._process.is_alive(),
                timeout=self._config.overlap.patience,
            )
        if not free:
            raise self._hung()
        self._shared.write(slot, weights)
        self._in_slot[slot] = version
        with suppress(ConnectionError):  # `next` tells why nobody listens
            self._connection.send_bytes(encode(Push(version, slot)))

    def next(self, update: int) -> Batch:
        """The batch of `update`. Raises the error of the rollout process, or EnvironmentFailedError when it is gone."""
        try:
            item = self._batches.get(timeout=self._config.overlap.patience)
        except queue.Empty:
            raise self._hung() from None
        if isinstance(item, Exception):
            raise item
        if item is None:
            raise self._died()
        if item.update != update:
            raise RuntimeError(f"rollouts of update {item.update} came when those of {update} were due")
        return item

    def unused(self) -> list[Batch]:
        """Finished batches that no update will use, since the run ends."""
        found = []
        with suppress(queue.Empty):
            while True:
                item = self._batches.get_nowait()
                if isinstance(item, Batch):
                    found.append(item)
        return found

    def _receive(self) -> None:
        """Body of the receiving thread; None in the queue means that nothing comes any more."""
        try:
            while True:
                message = decode(self._connection.recv_bytes())
                if isinstance(message, Batch):
                    self._batches.put(message)
                elif isinstance(message, Failed):
                    self._batches.put(message.error())
                elif isinstance(message, Applied):
                    with self._applied:
                        self.applied_version = max(self.applied_version, message.version)
                        self._applied.notify_all()
        except (EOFError, OSError):
            self._process.join(PATIENCE_AT_END)
            self._batches.put(None)
            with self._applied:
                self._applied.notify_all()

    def _died(self) -> EnvironmentFailedError:
        code = self._process.exitcode
        how = f"ended with exit code {code}"
        if code is not None and code < 0:
            how = f"was killed by signal {-code}{' (out of memory?)' if -code == signal.SIGKILL else ''}"
        elif code is not None:
            how += " without a word (does the task end the process?)"
        return EnvironmentFailedError(
            f"the rollout process {how}: run the same command again, it continues where this ended"
        )

    def _hung(self) -> EnvironmentFailedError:
        return EnvironmentFailedError(
            f"no rollouts came for {self._config.overlap.patience:g} s (overlap.patience), though their process lives: "
            "raise overlap.patience if responses take that long, then run the same command again, it continues"
        )


def _transport(config: RunConfig) -> torch.dtype:
    """dtype of weights on their way. vLLM rounds all of them to bfloat16 itself, the learner's code only some."""
    rounds = config.engine != "hf" and config.trainer.behaviour_logprobs == "engine"
    return torch.bfloat16 if config.trainer.dtype == "bfloat16" and rounds else torch.float32


def _process(connection: Connection, assignment: Assignment) -> BaseProcess:
    """CUDA does not survive a fork; without it a server process that has torch loaded saves seconds."""
    if assignment.device.startswith("cuda"):
        return multiprocessing.get_context("spawn").Process(
            target=rollout_process, args=(connection, assignment)
        )
    multiprocessing.set_forkserver_preload(PRELOAD)
    return multiprocessing.get_context("forkserver").Process(
        target=rollout_process, args=(connection, assignment)
    )


def rollout_device(learner: str, processes: int = 1) -> str:
    """A GPU of its own where the learner's processes leave one, else the learner's device."""
    free = learner.startswith("cuda") and torch.cuda.device_count() > processes
    return f"cuda:{processes}" if free else learner
