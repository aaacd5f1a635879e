"""Stuck policies in logs of frameworks that log how many groups have differing rewards."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from calibrator.runlogs.curve import Series
from calibrator.runlogs.groups import full_marks, with_signal
from calibrator.runlogs.judged import JudgedLog

Log = Callable[..., JudgedLog]
ROWS, DRY = 300, 150


def level(i: int, end: float) -> float:
    return 0.25 + (end - 0.25) * min(1.0, i / 100) + 0.01 * (-1) ** i * (i < DRY)


def tinker(i: int, end: float) -> dict[str, Any]:
    mixed = 0.7 if i < DRY else 0.0
    good, bad = (1 - mixed) * end, (1 - mixed) * (1 - end)
    groups = {"frac_mixed": mixed, "frac_all_good": good, "frac_all_bad": bad}
    more = {f"env/all/by_group/{name}": share for name, share in groups.items()}
    return {"progress/batch": i, "env/all/reward/total": level(i, end), "optim/lr": 1e-5, **more}


def prime(i: int, end: float) -> dict[str, Any]:
    dry = 0.3 if i < DRY else 1.0
    shares = {"train/agg/all/solved_all": dry * end, "train/agg/all/solved_none": dry * (1 - end)}
    return {"step": i, "train/agg/effective/all/rewards/all/mean": level(i, end), "optim/lr": 1e-5, **shares}


@pytest.mark.parametrize(("row", "framework"), [(tinker, "tinker"), (prime, "prime-rl")])
@pytest.mark.parametrize(("end", "verdict"), [(0.4, "collapsed"), (1.0, "stable"), (0.8, "stable")])
def test_groups_that_all_score_alike_far_from_full_marks_are_the_end(
    log: Log, row: Any, framework: str, end: float, verdict: str
) -> None:
    found = log([row(i, end) for i in range(ROWS)], framework=framework, sync_interval=1).verdict
    assert found.verdict == verdict
    if verdict == "collapsed":
        assert found.onset_updates is not None
        assert found.onset_updates[0] <= DRY <= found.onset_updates[1] + 1


def test_trl_needs_full_marks_to_be_told(log: Log) -> None:
    rows = [
        {"step": i + 1, "reward": level(i, 0.4), "frac_reward_zero_std": 0.3 if i < DRY else 1.0}
        for i in range(ROWS)
    ]
    text = json.dumps({"log_history": rows})
    settings = {"name": "trainer_state.json", "framework": "trl", "sync_interval": 1}
    assert log(text, **settings).verdict.verdict == "stable"
    assert log(text, **settings, full_marks=1.0).verdict.verdict == "collapsed"


def test_rounded_shares_leave_no_signal() -> None:
    found = with_signal({"solved": np.array([0.4, 0.1]), "unsolved": np.array([0.6 - 1e-12, 0.5])})
    assert found.keys() == {"signal"}
    assert found["signal"].tolist() == [0.0, pytest.approx(0.4)]


def test_full_marks_are_those_of_solved_groups() -> None:
    seen = np.arange(1.0, 101.0)
    value = np.where(seen > 50, -1.0 + 5.0 * 0.4, 0.0)  # two groups in five solved, from floor -1 to 4
    rewards = Series("reward", seen - 1, value, np.full(100, np.nan), seen)
    signal = np.where(seen > 50, 0.0, 0.5)
    assert full_marks(signal, np.full(100, 0.4), rewards, -1.0) == pytest.approx(4.0)
    assert full_marks(np.full(100, 0.5), np.full(100, 0.4), rewards, -1.0) is None
