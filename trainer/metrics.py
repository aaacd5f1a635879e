"""The rows that a run writes: one JSON object an update to `metrics.jsonl`. Importing this never imports torch.

A row holds no clock time, so that two runs of the same config and seed write the same bytes; seconds go to
`timings.jsonl`. Non-finite numbers are written as null and their names are listed under `non_finite`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict


class MetricsRow(TypedDict, total=False):
    """Fields of a row of `metrics.jsonl`. Rates in LR, lengths in tokens, rewards on the task's own scale."""

    update: int
    """u, counted from 0."""
    version: int
    """Version of the behaviour policy: the rewards of this row are the rewards of that version."""
    learning_rate: float
    """eta_u, really applied."""
    cumulative_lr: float
    """L(u + 1): the sum of the rates applied so far, this update included."""
    reward_mean: float
    reward_se: float
    """Standard error over the G x P trajectories, prompts as clusters."""
    pass_histogram: list[int]
    """Groups by share of full marks: 0, (0, 1/4], (1/4, 1/2], (1/2, 3/4], (3/4, 1), 1."""
    signal: float
    """Share of groups whose rewards differ: only these have advantages."""
    unscored: int
    """Trajectories that the task could not score: they have no advantage and are in no number about rewards."""
    loss: float
    entropy: float
    """Nats per token: mean negative logprob of the learner at the sampled tokens, which estimates it at lag 0."""
    grad_norm: float
    """Before clipping."""
    grad_cosine: float
    """Cosine between this and the previous update's gradient; absent at update 0."""
    lag_mean: float
    lag_max: int
    lag_histogram: list[list[int]]
    """Pairs [lag in updates, trajectories of this batch with it]."""
    log_ratio_mean: float
    log_ratio_abs_mean: float
    log_ratio_max: float
    group_mass_mean: float
    """Mean over groups of sum_j r_j / G."""
    group_mass_max: float
    cap_activation: float
    """Share of groups (`gmc`), trajectories (`tic`, `tic_zero`, `gspo`) or tokens (others) on which the cap acts."""
    ess: float
    """Effective sample size of the ratios as a share of the batch, in (0, 1]."""
    response_length: float
    truncated: float
    """Share of responses that hit the response limit."""
    tokens_generated: int
    tokens_learned: int
    initial_reward: float
    """Probe of version 0; on the row of update 0 only."""
    initial_se: float
    probe_version: int
    """Version u + 1, on which the probe was taken; the three probe fields are absent on other rows."""
    probe_reward: float
    probe_se: float
    bias_sq: float
    """<d_1, d_2>: squared norm of the staleness bias, d_h = (gradient of the estimator) - (gradient with full ratios)
    over half h of the prompts, before clipping. Unbiased, so it may be negative by noise. On every n-th row, where
    n = `probe.staleness_every`, as `full_grad_sq`."""
    full_grad_sq: float
    """<f_1, f_2>: squared norm of the gradient with full trajectory ratios r_i, not capped, from the same halves."""
    mismatch_mean: float
    """Mean over tokens of |log pi(y_t) - log mu(y_t)|: the learner's code against the engine's for the same weights.
    The three mismatch fields stand on the row of a synchronization at which they were measured."""
    mismatch_max: float
    """The largest of these."""
    mismatch_log_ratio: float
    """Mean over trajectories of |sum_t [log pi(y_t) - log mu(y_t)]| for the same weights: the log-ratio that remains
    without any staleness."""
    non_finite: list[str]
    """Names of the fields that were NaN or infinite; absent when all were finite."""


FATAL = (
    "loss",
    "grad_norm",
    "log_ratio_mean",
    "log_ratio_abs_mean",
    "log_ratio_max",
    "reward_mean",
    "probe_reward",
)
"""Loss, gradient and ratio, and the rewards, which are NaN where the policy's logits are: the first non-finite value is
the end of a run. An overflow in a derived statistic (group mass, ESS) is none: the estimators work with logarithms."""


def encode_row(row: Mapping[str, Any]) -> str:
    """One line of JSON, without newline. Keys keep their order, floats print shortest-exact."""
    broken = [key for key, value in row.items() if isinstance(value, float) and not math.isfinite(value)]
    clean = {key: None if key in broken else value for key, value in row.items()}
    if broken:
        clean["non_finite"] = broken
    return json.dumps(clean, allow_nan=False, separators=(",", ":"))


class JsonLines:
    """Append-only file of JSON lines that can be cut back to an offset, so that a resume repeats no line."""

    def __init__(self, path: Path, *, offset: int = 0) -> None:
        """Open `path` and drop everything after byte `offset` (written after the last checkpoint)."""
        self.path = path
        mode = "r+b" if path.exists() else "w+b"
        self._file = path.open(mode)
        self._file.truncate(offset)
        self._file.seek(offset)

    def write(self, row: Mapping[str, Any]) -> None:
        """Append one row; it is visible to readers at once."""
        self._file.write(encode_row(row).encode() + b"\n")
        self._file.flush()

    def sync(self) -> int:
        """Force what was written to the disk; returns the offset that a checkpoint remembers."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
