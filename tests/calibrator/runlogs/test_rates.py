"""Cumulative learning rates from rows that stand for several updates, against the schedule that was applied."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from calibrator.runlogs.judged import JudgedLog

Log = Callable[..., JudgedLog]
PEAK, T = 1e-5, 200
u = np.arange(T)
SCHEDULES = {
    "constant": np.full(T, PEAK),
    "linear": PEAK * (1 - u / T),
    "cosine": PEAK * 0.5 * (1 + np.cos(np.pi * u / T)),
    "warm-up": PEAK * np.minimum(1.0, u / 40),
    "warm-up, linear": PEAK * np.minimum(u / 50, (T - u) / 150),
    "short warm-up": PEAK * np.minimum(1.0, u / 15),
}


def state(rate: np.ndarray, every: int, *, after_step: bool) -> list[dict[str, Any]]:
    """TRL's rows: each has the rate of its last update, or of the one after it (transformers of before and since)."""
    known = np.append(rate, rate[-1] if np.ptp(rate) == 0 or rate[-1] == rate.max() else 0.0)
    return [
        {"step": step, "reward": 0.5, "grad_norm": 0.3, "learning_rate": float(known[step - 1 + after_step])}
        for step in range(every, T + 1, every)
    ]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("every", [1, 5, 10])
@pytest.mark.parametrize("after_step", [False, True])
def test_rows_of_several_updates_sum_to_the_schedule(
    log: Log, schedule: str, every: int, after_step: bool
) -> None:
    rate = SCHEDULES[schedule]
    rows = state(rate, every, after_step=after_step)
    text = json.dumps({"max_steps": T, "log_history": rows})
    curve = log(text, name="trainer_state.json", framework="trl", updates_per_row=every).log.curve
    # A rate that does not end at 0 hides whether it is of the last update or of the next: off by one update of T.
    hidden = 1.001 * PEAK if after_step and "linear" not in schedule and schedule != "cosine" else 0.0
    if (
        schedule == "short warm-up"
    ):  # its end lies between two rows: the triangle above their chord is not seen
        hidden += 0.15 * every * PEAK
    for version in (T // 2, T):
        truth = rate[:version].sum()
        assert curve.cumulative_lr(version) == pytest.approx(truth, abs=max(hidden, 0.005 * truth))


def test_console_rows_without_steps_sum_to_the_schedule(log: Log) -> None:
    rows = state(SCHEDULES["linear"], 10, after_step=False)
    text = "".join(f"{ {key: row[key] for key in row if key != 'step'} }\n" for row in rows)
    found = log(text, name="train.log", framework="trl-console", updates_per_row=10).verdict
    assert found.updates == T
    assert found.cumulative_lr_total == pytest.approx(SCHEDULES["linear"].sum(), rel=1e-9)


def test_a_drop_to_a_lower_rate_is_not_taken_for_a_decay_from_above(log: Log) -> None:
    rows = state(np.where(u < 15, PEAK, PEAK / 10), 10, after_step=False)
    rate = log(
        json.dumps({"log_history": rows}), name="trainer_state.json", framework="trl"
    ).log.curve.learning_rate
    assert rate.max() == PEAK


def test_sparse_rows_of_a_table_reach_back_to_the_first_update(log: Log) -> None:
    rows = [
        {"update": int(i) + 1, "reward": 0.5, "lr": float(SCHEDULES["linear"][i])} for i in range(9, T, 10)
    ]
    total = log(rows, framework="csv").verdict.cumulative_lr_total
    assert total == pytest.approx(SCHEDULES["linear"].sum(), rel=0.005)


def test_a_rate_that_moves_once_a_row_is_constant_within_it(log: Log, verl: Callable[..., Any]) -> None:
    rows = verl([0.5] * 50, **{"actor/lr": lambda i: PEAK * (1 - i / 50)})
    total = log(rows, framework="verl", updates_per_row=4).verdict.cumulative_lr_total
    assert total == pytest.approx(4 * sum(PEAK * (1 - i / 50) for i in range(50)), rel=1e-9)
