"""math-verify in processes of its own: it hangs, it is not thread-safe, and it must not take the trainer with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import weakref
from collections.abc import Sequence
from multiprocessing.connection import wait
from pathlib import Path
from threading import Lock
from typing import IO, cast

from trainer.errors import EnvironmentFailedError
from trainer.tasks.math_worker import ALARMS, PATIENCE
from trainer.tasks.protocol import Unscored

SCRIPT = Path(__file__).with_name("math_worker.py")
START = 120.0
"""Seconds within which a worker must be up; it takes about one on an idle machine."""
GRACE = 5.0
"""Seconds beyond the limit after which a worker that did not end itself is killed."""


class Worker:
    """One process of math-verify, with at most one question in its hands."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._deadline = time.monotonic() + START
        self._received = b""
        # -P: neither the current folder nor the script's own can hide a module of math-verify.
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(SCRIPT), str(timeout)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self._input = cast("IO[bytes]", self.process.stdin)
        self.output = cast("IO[bytes]", self.process.stdout)
        """Becomes readable when there is something to `read`."""

    @property
    def overdue(self) -> float:
        """Seconds until the worker is overdue, negative afterwards."""
        return self._deadline - time.monotonic()

    def ask(self, answer: str, completion: str) -> None:
        """Raises BrokenPipeError when the process is gone."""
        question = json.dumps([answer, completion]).encode() + b"\n"
        while question:
            question = question[self._input.write(question) or 0 :]
        self._deadline = time.monotonic() + PATIENCE * self._timeout + GRACE

    def read(self) -> str | None:
        """The line that the worker wrote, None while it is unfinished. Raises EOFError when the process is gone."""
        chunk = os.read(self.output.fileno(), 4096)
        if not chunk:
            raise EOFError
        self._received += chunk
        if not self._received.endswith(b"\n"):
            return None
        line, self._received = self._received.decode().strip(), b""
        return line

    def end(self) -> int:
        """Kill the process, if it still runs; returns its exit status."""
        self.process.kill()
        status = self.process.wait()
        self._input.close()
        self.output.close()
        return status


class Verifier:
    """A pool of workers, started when first needed, replaced when one dies, ended with the pool or the process."""

    def __init__(self, *, timeout: float, workers: int = 2) -> None:
        """`timeout`: seconds that one comparison may take, from when a worker gets it."""
        self._timeout, self._most = timeout, workers
        self._idle: list[Worker] = []
        self._lock = Lock()
        self.close = weakref.finalize(self, _end_all, self._idle)
        """End all workers; called on its own when the pool is dropped and when the process exits."""

    def equal(self, pairs: Sequence[tuple[str, str]]) -> list[bool | Unscored]:
        """Whether each (answer, completion) agrees. What could not be told is Unscored with the reason.

        May be called from several threads, which take turns. Raises EnvironmentFailedError when no worker starts.
        """
        different = list(dict.fromkeys(pairs))
        with self._lock:
            verdicts = dict(zip(different, self._compare(different), strict=True))
        return [verdicts[pair] for pair in pairs]

    def _compare(self, pairs: Sequence[tuple[str, str]]) -> list[bool | Unscored]:
        verdicts: dict[int, bool | Unscored] = {}
        waiting = list(range(len(pairs)))[::-1]
        busy: dict[Worker, int] = {}
        try:
            while waiting or busy:
                while waiting and len(busy) < self._most:
                    number = waiting.pop()
                    busy[self._ask(*pairs[number])] = number
                for worker in _ready(list(busy)):
                    verdict = self._verdict(worker)
                    if verdict is not None:
                        verdicts[busy.pop(worker)] = verdict
        finally:
            for worker in busy:  # Only after an error: what they would answer belongs to no one.
                worker.end()
        return [verdicts[number] for number in range(len(pairs))]

    def _ask(self, answer: str, completion: str) -> Worker:
        """Give the question to an idle worker or a new one."""
        while self._idle:
            worker = self._idle.pop()
            try:
                worker.ask(answer, completion)
            except BrokenPipeError:  # It died between two calls.
                worker.end()
            else:
                return worker
        worker = _start(self._timeout)
        worker.ask(answer, completion)
        return worker

    def _verdict(self, worker: Worker) -> bool | Unscored | None:
        """What the worker says, or what its end says; None while it is still writing."""
        try:
            line = worker.read() if worker.overdue > 0 else "overdue"
        except EOFError:
            line = "gone"
        if line is None:
            return None
        if line in ("gone", "overdue"):
            return Unscored(_why(worker.end(), line, self._timeout))
        self._idle.append(worker)
        said = json.loads(line)
        return said if isinstance(said, bool) else Unscored(f"math-verify ended with {said}")


def _start(timeout: float) -> Worker:
    worker = Worker(timeout)
    try:
        while worker.overdue > 0:
            if _ready([worker]) and worker.read() == "ready":
                return worker
        why = f"it was not ready within {START:g} s"
    except EOFError:
        why = "it ended at once; its error is printed above"
    worker.end()
    raise EnvironmentFailedError(f"the process that runs math-verify does not start: {why}")


def _ready(workers: Sequence[Worker]) -> list[Worker]:
    """Those with something to read or overdue; waits until there is one."""
    patience = max(0.0, min(worker.overdue for worker in workers))
    readable = wait([worker.output.fileno() for worker in workers], patience)
    return [worker for worker in workers if worker.output.fileno() in readable or worker.overdue <= 0]


def _why(status: int, line: str, timeout: float) -> str:
    if line == "overdue" or -status in ALARMS:
        return f"math-verify took longer than task.scoring_timeout = {timeout:g} s"
    return f"the process that runs math-verify died (exit status {status})"


def _end_all(workers: list[Worker]) -> None:
    while workers:
        workers.pop().end()
