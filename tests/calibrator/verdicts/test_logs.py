"""Logs of other frameworks: the verdict, onset and cumulative rate of a careful reader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from calibrator.runlogs.curve import Curve
from calibrator.verdicts.judge import JudgeSettings, judge


def within(interval: tuple[float, float] | None, allowed: list[float]) -> bool:
    return interval is not None and allowed[0] <= interval[0] <= interval[1] <= allowed[1]


def test_case(case: dict[str, Any], of_case: Callable[[dict[str, Any]], Curve]) -> None:
    settings = JudgeSettings(
        reward_floor=case["reward_floor"], sync_interval=case["sync_interval"], horizon=case.get("horizon")
    )
    found, expected = judge(of_case(case), settings), case["expect"]
    assert found.verdict == expected["verdict"]
    if "onset_updates" in expected:
        assert within(found.onset_updates, expected["onset_updates"])
    else:
        assert found.onset_updates is None
    if "cumulative_lr_at_onset" in expected:
        assert within(found.cumulative_lr_at_onset, expected["cumulative_lr_at_onset"])
    if "cumulative_lr_total" in expected:
        low, high = expected["cumulative_lr_total"]
        assert found.cumulative_lr_total is not None
        assert low <= found.cumulative_lr_total <= high
    if "updates" in expected:
        assert found.updates == expected["updates"]
    if "without_learning_rate" in expected:
        assert found.cumulative_lr_total is None
        assert found.cumulative_lr_at_onset is None
        assert any("learning rate" in warning for warning in found.warnings)
