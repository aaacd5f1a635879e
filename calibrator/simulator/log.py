"""A simulated run as the log that our own trainer would have written, for tests that start from files."""

from __future__ import annotations

import math
from pathlib import Path
from typing import cast

import numpy as np

from calibrator.simulator.runs import Simulated
from trainer.metrics import MetricsRow, encode_row


def rows(batch: Simulated, run: int) -> list[MetricsRow]:
    """One row an update, with the fields of the judge: rates, rewards, probes, lags and witnesses."""
    curve = batch.curve(run)
    clock = np.cumsum(curve.learning_rate)
    columns = {
        "version": curve.rewards.version.astype(int),
        "learning_rate": curve.learning_rate,
        "cumulative_lr": clock,
        "reward_mean": curve.rewards.value,
        "reward_se": curve.rewards.se,
        "loss": np.zeros(curve.updates),
        **curve.witnesses,
        "lag_max": curve.witnesses["lag_max"].astype(int),
    }
    lists = {name: values.tolist() for name, values in columns.items()}
    found = [
        {"update": update, **{name: values[update] for name, values in lists.items()}}
        for update in range(curve.updates)
    ]
    if curve.probes is not None and found:
        told = zip(curve.probes.version.astype(int), curve.probes.value, curve.probes.se, strict=True)
        for version, value, error in told:
            probe: dict[str, float] = (
                {"probe_version": int(version), "probe_reward": float(value), "probe_se": float(error)}
                if version
                else {"initial_reward": float(value), "initial_se": float(error)}
            )
            found[max(int(version) - 1, 0)].update(probe)
    return [cast("MetricsRow", row) for row in found]


def write_log(batch: Simulated, run: int, path: Path, *, broken_from: int | None = None) -> None:
    """Write `metrics.jsonl`; from update `broken_from` on the loss is not finite, and the log ends there."""
    told = rows(batch, run)
    if broken_from is not None:
        told = told[: broken_from + 1]
        told[-1]["loss"] = math.nan
    path.write_text("".join(encode_row(row) + "\n" for row in told), encoding="utf-8")
