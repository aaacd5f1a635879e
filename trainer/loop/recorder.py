"""What a run leaves in its folder: metrics, timings, ratio shards; and what it tells the sinks of `[log]`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save

from trainer.config import RunConfig
from trainer.errors import ConfigError
from trainer.files import write_atomically
from trainer.loop.clock import Stopwatch
from trainer.loop.rollouts import Rollouts
from trainer.loop.sinks import Sinks
from trainer.metrics import JsonLines, MetricsRow

METRICS, TIMINGS = "metrics.jsonl", "timings.jsonl"


class Recorder:
    """Files of one run, cut back to what the last checkpoint vouches for."""

    def __init__(
        self, config: RunConfig, folder: Path, *, update: int, metrics_offset: int, timings_offset: int
    ) -> None:
        """`update` is the next update to make; shards and rows of later updates are dropped.

        A shard holds updates between two checkpoints only, so none begins before `update` and ends after it.
        Raises ConfigError when a file is shorter than the checkpoint says.
        """
        self._folder = folder
        self._record_ratios = config.record_ratios
        self._shard_start = update
        self._shard: list[dict[str, np.ndarray]] = []
        logged = count_lines(folder / METRICS)
        require_bytes(folder / METRICS, metrics_offset)
        require_bytes(folder / TIMINGS, timings_offset)
        self.metrics = JsonLines(folder / METRICS, offset=metrics_offset)
        self.timings = JsonLines(folder / TIMINGS, offset=timings_offset)
        self.rows = read_rows(folder / METRICS)
        self.clock = Stopwatch()
        for path in folder.glob("ratios-*.safetensors"):
            if int(path.stem.removeprefix("ratios-")) >= update:
                path.unlink()
        self._sinks = Sinks(config, folder, update=update, logged=logged)

    def update_done(
        self, row: MetricsRow, rollouts: Rollouts, log_ratios: torch.Tensor, *, group_size: int
    ) -> None:
        """Write one update."""
        self.write(row)
        if self._record_ratios:
            self._shard.append(_compact(row["update"], rollouts, log_ratios, group_size))

    def write(self, row: MetricsRow) -> None:
        """Write the row of an update and its seconds."""
        self.rows.append(row)
        self.metrics.write(row)
        self._sinks.log(row)
        self.timings.write({"update": row["update"], **self.clock.take()})

    def flush(self) -> tuple[int, int]:
        """Write the pending shard and force the lines to disk; returns the offsets of metrics and timings."""
        if self._shard:
            columns = {key: np.concatenate([part[key] for part in self._shard]) for key in self._shard[0]}
            write_atomically(self._folder / f"ratios-{self._shard_start:06d}.safetensors", save(columns))
            self._shard_start = int(columns["update"][-1]) + 1
            self._shard = []
        return self.metrics.sync(), self.timings.sync()

    def close(self) -> None:
        self.metrics.close()
        self.timings.close()
        self._sinks.close()


def count_lines(path: Path) -> int:
    """Whole lines of a file that may not exist."""
    if not path.is_file():
        return 0
    with path.open("rb") as file:
        return sum(line.endswith(b"\n") for line in file)


def require_bytes(path: Path, offset: int) -> None:
    """Raise ConfigError when `path` lacks lines that a checkpoint vouches for."""
    if offset > (path.stat().st_size if path.is_file() else 0):
        raise ConfigError(
            f"{path} lacks lines of updates that its checkpoint has behind it; put the file back, "
            "or delete the folder to start this run anew"
        )


def read_rows(path: Path) -> list[MetricsRow]:
    """Rows that were written before; the file holds whole lines only after being cut back."""
    try:
        return [json.loads(line) for line in path.read_bytes().splitlines()]
    except ValueError as error:
        raise ConfigError(
            f"{path} cannot be read back ({error}); delete the folder to start this run anew"
        ) from error


def _compact(
    update: int, rollouts: Rollouts, log_ratios: torch.Tensor, group_size: int
) -> dict[str, np.ndarray]:
    """Columns of a ratio shard, one entry a trajectory. `group` counts groups over the whole run."""
    n = len(rollouts)
    first_group = update * (n // group_size)
    return {
        "update": np.full(n, update, dtype=np.int32),
        "group": (first_group + np.arange(n) // group_size).astype(np.int32),
        "reward": rollouts.reward.cpu().numpy().astype(np.float32),
        "lag": (update - rollouts.oldest_version.cpu().numpy()).astype(np.int32),
        "log_ratio": log_ratios.numpy().astype(np.float32),
    }
