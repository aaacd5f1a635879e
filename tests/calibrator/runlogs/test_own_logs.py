"""Our own metrics through the reader of all logs: the same curve as the study's reader gives."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrator.runlogs.own import read_metrics
from calibrator.runlogs.read import ReadLog, read_log
from calibrator.runlogs.settings import LogSettings
from calibrator.verdicts.judge import JudgeSettings, judge
from trainer.metrics import encode_row

Course = Callable[..., list[float]]


def own_rows(rewards: list[float], **changes: Callable[[int], Any]) -> list[dict[str, Any]]:
    rows = []
    for u, reward in enumerate(rewards):
        row = {
            "update": u,
            "version": u // 4 * 4,
            "learning_rate": 1e-3 * min(1.0, (u + 1) / 10),
            "reward_mean": reward,
            "reward_se": 0.03,
            "signal": 0.5,
            "loss": 0.1,
            "entropy": 0.5,
            "grad_norm": 1.0,
            "lag_max": u % 4,
        }
        if u == 0:
            row |= {"initial_reward": 0.3, "initial_se": 0.01}
        if u % 8 == 7:
            row |= {"probe_version": u + 1, "probe_reward": reward, "probe_se": 0.02}
        rows.append(row | {name: change(u) for name, change in changes.items() if change(u) is not None})
    return rows


@pytest.fixture
def both(tmp_path: Path) -> Callable[[list[dict[str, Any]]], tuple[ReadLog, Any]]:
    def both(rows: list[dict[str, Any]]) -> tuple[ReadLog, Any]:
        path = tmp_path / "metrics.jsonl"
        path.write_text("".join(encode_row(row) + "\n" for row in rows))
        return read_log(path, LogSettings()), read_metrics(path)

    return both


SHAPES: dict[str, dict[str, Callable[[int], Any]]] = {
    "whole": {},
    "diverged": {"grad_norm": lambda u: math.nan if u >= 90 else None},
    "one infinite loss": {"loss": lambda u: math.inf if u == 50 else None},
    "overflow of a statistic": {"group_mass_max": lambda u: math.inf if u == 50 else 2.0},
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dead_from", [None, 120])
def test_same_curve_and_verdict(both: Any, course: Course, shape: str, dead_from: int | None) -> None:
    read, curve = both(own_rows(course(200, dead_from=dead_from), **SHAPES[shape]))
    assert (read.framework, read.judge.sync_interval) == ("calibrate", 4)
    assert (read.curve.updates, read.curve.max_lag) == (curve.updates, curve.max_lag)
    assert read.curve.non_finite_update == curve.non_finite_update
    np.testing.assert_array_equal(read.curve.learning_rate, curve.learning_rate)
    for mine, theirs in ((read.curve.rewards, curve.rewards), (read.curve.probes, curve.probes)):
        for part in ("version", "value", "se", "seen"):
            np.testing.assert_array_equal(getattr(mine, part), getattr(theirs, part))
    assert read.curve.witnesses.keys() == curve.witnesses.keys()
    for name, values in curve.witnesses.items():
        np.testing.assert_array_equal(read.curve.witnesses[name], values)
    ours, theirs = judge(read.curve, read.judge), judge(curve, JudgeSettings(sync_interval=4))
    plain = {"warnings": []}
    assert ours.model_copy(update=plain) == theirs.model_copy(update=plain)


def test_a_resumed_trial(both: Any, course: Course) -> None:
    read, curve = both(own_rows(course(100)) + own_rows(course(160, seed=1))[80:])
    assert read.curve.updates == curve.updates == 160
    np.testing.assert_array_equal(read.curve.rewards.value, curve.rewards.value)


def test_nothing_of_an_own_log_is_guessed(both: Any) -> None:
    log, _ = both(own_rows([0.4] * 8, version=lambda u: u // 4 * 4, lag_max=lambda u: u % 4))
    assert log.judge.sync_interval == 4
    assert not log.curve.warnings


@pytest.mark.parametrize(("told", "notes"), [(2, 1), (4, 0), (16, 2)])
def test_an_interval_that_contradicts_the_log_is_said(tmp_path: Path, told: int, notes: int) -> None:
    path = tmp_path / "metrics.jsonl"
    rows = own_rows([0.4] * 32, version=lambda u: u // 4 * 4, lag_max=lambda u: u % 4)
    path.write_text("".join(encode_row(row) + "\n" for row in rows))
    log = read_log(path, LogSettings(sync_interval=told))
    assert log.judge.sync_interval == told
    assert len(log.curve.warnings) == notes
    assert all("that was passed" in note or "of the S passed" in note for note in log.curve.warnings)
