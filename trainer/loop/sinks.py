"""Where metrics go beside `metrics.jsonl`: TensorBoard, trackio, wandb.

None of them may stop a run or hold it up. Each lives in a daemon thread of its own behind a bounded queue, so that
whatever it raises or however long it hangs, at its start, on a row or at its end, the run goes on: the sink is
switched off and one line on stderr says so.
"""

from __future__ import annotations

import math
import os
import queue
import secrets
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from trainer.config import RunConfig

START_SECONDS = 60.0
"""What a sink may take to come up; wandb starts a server of its own."""
CLOSE_SECONDS = 60.0
"""What a sink may take to write or send what it still holds."""
BACKLOG = 4096
"""Rows that may wait for a slow sink."""
ID_FILE = "run-id"


@dataclass(frozen=True)
class Start:
    """What a sink is told at its start."""

    config: RunConfig
    folder: Path
    update: int
    """First update whose row comes; above 0 in a run that goes on from a checkpoint."""
    logged: int
    """Updates that were logged before the run was interrupted: those from `update` on are made, and come, again."""

    @property
    def name(self) -> str:
        """Name of the run for people: the end of its folder's path."""
        return "-".join(self.folder.resolve().parts[-3:]).strip("/-")

    @property
    def run_id(self) -> str:
        """Name of the run for machines: drawn once, kept in the run's folder."""
        path = self.folder / ID_FILE
        if not path.is_file():
            path.write_text(secrets.token_hex(6))
        return path.read_text().strip()


class Sink(Protocol):
    """One place where rows go. Its constructor takes a `Start`; any method may raise."""

    def log(self, update: int, numbers: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Event files in `tensorboard/` of the run's folder; rows that a resume makes again replace the old ones."""

    def __init__(self, start: Start) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(start.folder / "tensorboard"), purge_step=start.update)

    def log(self, update: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, update)

    def close(self) -> None:
        self._writer.close()


class Trackio:
    """A local trackio project; goes to a server only where trackio's own environment variables name one."""

    def __init__(self, start: Start) -> None:
        import trackio

        self._first = start.logged
        self._run = trackio.init(
            project=start.config.log.project,
            name=f"{start.name}-{start.run_id}",
            config=start.config.model_dump(mode="json"),
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def log(self, update: int, numbers: Mapping[str, float]) -> None:
        if update >= self._first:
            self._run.log(dict(numbers), step=update)

    def close(self) -> None:
        self._run.finish()


class Wandb:
    """A wandb run in `wandb/` of the run's folder. Nothing but the numbers and the run's configuration is recorded.

    Only mode `online` reaches the network, and only with a key that `wandb login` or WANDB_API_KEY gave before:
    nobody is asked for one.
    """

    def __init__(self, start: Start) -> None:
        mode = start.config.log.wandb
        os.environ["WANDB_MODE"] = mode
        # Offline, too, wandb sends usage statistics home unless its environment forbids it before it is imported.
        os.environ["WANDB_ERROR_REPORTING"] = "false"
        import wandb

        if mode == "online" and not wandb.login(prompt=False):
            raise RuntimeError("no key is configured; run `wandb login`, or use offline")
        self._first = start.logged
        self._run = wandb.init(
            mode="online" if mode == "online" else "offline",
            project=start.config.log.project,
            id=start.run_id,
            name=start.name,
            dir=str(start.folder),
            config=start.config.model_dump(mode="json"),
            resume="allow",
            settings=_quiet(wandb),
        )

    def log(self, update: int, numbers: Mapping[str, float]) -> None:
        if update >= self._first:
            self._run.log(dict(numbers), step=update)

    def close(self) -> None:
        self._run.finish()


def _quiet(wandb: Any) -> Any:
    """Numbers only: no console, code, git state, machine facts or system metrics; bounded waits."""
    return wandb.Settings(
        console="off",
        silent=True,
        disable_code=True,
        disable_git=True,
        save_code=False,
        host="run",
        init_timeout=START_SECONDS / 2,
        finish_timeout=CLOSE_SECONDS / 2,
        x_disable_meta=True,
        x_disable_machine_info=True,
        x_disable_stats=True,
        x_save_requirements=False,
    )


Factory = Callable[[Start], Sink]
FACTORIES: dict[str, Factory] = {"tensorboard": TensorBoard, "trackio": Trackio, "wandb": Wandb}
"""By key of `[log]`, which is also the name of the package and of the extra that installs it."""


class Background:
    """A sink in a thread of its own. No method raises or waits longer than its limit."""

    def __init__(self, name: str, factory: Factory, start: Start, *, limit: float = START_SECONDS) -> None:
        self._name, self._off = name, threading.Event()
        self._rows: queue.Queue[tuple[int, Mapping[str, float]] | None] = queue.Queue(BACKLOG)
        self._up, self._down = threading.Event(), threading.Event()
        self._thread = threading.Thread(
            target=self._work, args=(factory, start), name=f"sink-{name}", daemon=True
        )
        with redirect_stdout(sys.stderr):  # Standard output is for answers.
            self._thread.start()
            if not self._up.wait(limit):
                self._switch_off(f"it did not start within {limit:g} s")

    def log(self, update: int, numbers: Mapping[str, float]) -> None:
        """Hand a row over."""
        if self._off.is_set():
            return
        try:
            self._rows.put_nowait((update, numbers))
        except queue.Full:
            self._switch_off(f"it is {BACKLOG} rows behind")

    def close(self, *, limit: float = CLOSE_SECONDS) -> None:
        """Wait until all rows are written."""
        if self._off.is_set():
            return
        try:
            self._rows.put_nowait(None)
        except queue.Full:
            self._switch_off(f"it is {BACKLOG} rows behind")
            return
        with redirect_stdout(sys.stderr):
            if not self._down.wait(limit):
                self._switch_off(f"it did not close within {limit:g} s; what it had not written is lost")

    def _work(self, factory: Factory, start: Start) -> None:
        """Body of the thread: one sink from its start to its end."""
        try:
            sink = factory(start)
            self._up.set()
            while not self._off.is_set() and (item := self._rows.get()) is not None:
                sink.log(*item)
            sink.close()
        except ImportError as error:
            self._switch_off(f"{error}; pip install 'grpo-calibrator[{self._name}]' installs what it needs")
        except BaseException as error:  # Libraries exit, too; here it is the thread that ends.
            self._switch_off(f"{type(error).__name__}: {error}")
        finally:
            self._up.set()
            self._down.set()

    def _switch_off(self, reason: str) -> None:
        if not self._off.is_set():
            self._off.set()
            line = " ".join(reason.split())
            print(f"warning: log.{self._name} is off, the run goes on without it: {line}", file=sys.stderr)


class Sinks:
    """All sinks that `[log]` asks for."""

    def __init__(self, config: RunConfig, folder: Path, *, update: int, logged: int) -> None:
        start = Start(config, folder, update, max(update, logged))
        wanted = [name for name in FACTORIES if getattr(config.log, name) not in (False, "off")]
        self._sinks = [Background(name, FACTORIES[name], start) for name in wanted]

    def log(self, row: Mapping[str, Any]) -> None:
        """Hand the numbers of a metrics row over."""
        for sink in self._sinks:
            sink.log(row["update"], numbers_of(row))

    def close(self) -> None:
        for sink in self._sinks:
            sink.close()


def numbers_of(row: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a row but its update; histograms and other lists are in `metrics.jsonl` only."""
    return {
        key: value
        for key, value in row.items()
        if key != "update"
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
    }
