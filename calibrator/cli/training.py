"""Progress of one training run on stderr: a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from trainer.config import RunConfig
from trainer.metrics import MetricsRow

EVERY = 25
"""Updates between two plain lines."""
CURVE = 32
"""Most characters of a curve."""
BLOCKS = "▁▂▃▄▅▆▇█"


class TrainingView:
    """Shows how far a run is, what it earns and how stale it is. `watch` is called with all rows after each update."""

    def __init__(self, run: RunConfig, console: Console) -> None:
        self._run, self._console = run, console
        self._rows: Sequence[MetricsRow] = ()
        self._start = time.monotonic()
        self._resumed_at: int | None = None
        """Updates that were there when this process made its first one."""
        self._first, self._tokens = self._start, 0
        """When this process made its first update, and the tokens since then: loading is no part of the pace."""
        self._live = (
            Live(get_renderable=self._view, console=console, refresh_per_second=2, transient=True)
            if redraws(console)
            else None
        )

    def __enter__(self) -> TrainingView:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def watch(self, rows: Sequence[MetricsRow]) -> None:
        """One update more."""
        if self._resumed_at is None:
            self._resumed_at, self._first = len(rows) - 1, time.monotonic()
        else:
            self._tokens += rows[-1].get("tokens_generated", 0)
        self._rows = rows
        if self._live is None:
            self._line(rows)

    def _line(self, rows: Sequence[MetricsRow]) -> None:
        row = rows[-1]
        if "probe_version" in row and len(rows) % EVERY < self._run.probe.every:
            self._console.print(
                f"update {len(rows):>5}/{self._run.updates}  L {row['cumulative_lr']:.3g}  "
                f"held-out {row['probe_reward']:.3f} +- {row['probe_se']:.3f}  lag {row['lag_max']}  "
                f"cap acts on {row['cap_activation']:.0%}",
                markup=False,
                highlight=False,
            )

    def _view(self) -> Table:
        """Called by rich's own thread; the rows only ever grow."""
        rows, now = list(self._rows), time.monotonic()
        timed = len(rows) - (self._resumed_at or 0) - 1  # the first update started the clock
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="bold", no_wrap=True)
        grid.add_column(overflow="ellipsis", no_wrap=True)
        left = time_left(now - self._first, timed, self._run.updates - len(rows))
        grid.add_row(
            "update", f"{len(rows)}/{self._run.updates}   {clock(now - self._start)} elapsed, {left}"
        )
        grid.add_row("", ProgressBar(total=self._run.updates, completed=len(rows), width=CURVE + 12))
        if not rows:
            grid.add_row("", "starting")
            return grid
        for name, text in cells(rows, plain=self._console.options.ascii_only):
            grid.add_row(name, text)
        if timed > 0:
            grid.add_row("speed", f"{self._tokens / (now - self._first):,.0f} tokens/s generated")
        return grid


def cells(rows: Sequence[MetricsRow], *, plain: bool) -> list[tuple[str, str]]:
    """What the rows say, by name. `plain`: no curves, for terminals that cannot show their characters."""
    last = rows[-1]
    rewards = [row["reward_mean"] for row in rows]
    found = [
        ("L", f"{last['cumulative_lr']:.3g}   eta {last['learning_rate']:.3g}"),
        ("reward", f"{rewards[-1]:.3f}   {'' if plain else curve(rewards)}"),
    ]
    probes = [row for row in rows if "probe_reward" in row]
    if probes:
        values = [row["probe_reward"] for row in probes]
        text = f"{values[-1]:.3f} +- {probes[-1]['probe_se']:.3f}   {'' if plain else curve(values)}"
        found.append(("held-out", text))
    elif "initial_reward" in rows[0]:
        found.append(("held-out", f"{rows[0]['initial_reward']:.3f} at the start"))
    found.append(
        (
            "lag",
            f"mean {last['lag_mean']:.1f}, max {last['lag_max']}   cap acts on {last['cap_activation']:.0%}",
        )
    )
    return found


def curve(values: Sequence[float]) -> str:
    """At most `CURVE` characters, each the mean of a stretch of `values`, from the lowest to the highest of them."""
    n = min(CURVE, len(values))
    edges = [round(i * len(values) / n) for i in range(n + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, spread = min(means), max(means) - min(means)
    return "".join(
        BLOCKS[min(len(BLOCKS) - 1, int((mean - low) / (spread or 1.0) * len(BLOCKS)))] for mean in means
    )


def redraws(console: Console) -> bool:
    """Whether a view can be drawn anew in place."""
    return console.is_terminal and not console.is_dumb_terminal


def clock(seconds: float) -> str:
    """h:mm:ss, or m:ss below an hour."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def time_left(elapsed: float, made: int, left: int) -> str:
    """An upper limit by the pace so far, `made` updates in `elapsed` seconds: a run may end early."""
    return f"at most about {clock(elapsed / made * left)} left" if made > 0 else "time left unknown"
