"""A policy frozen below half marks has collapsed, whatever its reward did before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibrator.runlogs.curve import Curve
from calibrator.verdicts.judge import JudgeSettings, judge, judge_so_far
from calibrator.verdicts.types import Verdict

MARKS = JudgeSettings(full_marks=1.0)


@pytest.fixture
def frozen(around: object) -> object:
    """Makes a curve at a constant reward whose signal ends at an update."""

    def make(level: float, alive: int, updates: int, share: float = 1.0) -> Curve:
        curve: Curve = around(np.full(updates, level))  # type: ignore[operator]
        signal = np.where(np.arange(updates) < alive, 0.5, 0.0)
        signal[:alive][np.arange(alive) % 10 >= 10 * share] = 0.0
        return replace(curve, witnesses={"signal": signal, "log_ratio_abs_mean": np.full(updates, 0.2)})

    return make


def test_a_policy_frozen_for_good_has_collapsed_where_its_signal_ended(frozen: object) -> None:
    curve = frozen(0.15, 40, 120)  # type: ignore[operator]
    for verdict in (judge(curve, MARKS), judge_so_far(curve, MARKS)):
        assert verdict is not None
        assert verdict.verdict is Verdict.COLLAPSED
        assert verdict.onset_updates == (39.0, 40.0)
        assert verdict.evidence[0].code == "stuck"


def test_a_short_dry_end_is_not_called_yet(frozen: object) -> None:
    curve = frozen(0.15, 60, 90)  # type: ignore[operator]
    assert judge(curve, MARKS).verdict is Verdict.INCONCLUSIVE
    assert judge_so_far(curve, MARKS) is None


def test_a_solved_task_has_no_signal_either(frozen: object) -> None:
    assert judge(frozen(0.99, 40, 200), MARKS).verdict is Verdict.STABLE  # type: ignore[operator]


def test_a_rarely_rewarded_policy_is_not_stuck(frozen: object) -> None:
    curve = frozen(0.15, 100, 200, share=0.2)  # type: ignore[operator]
    assert judge(curve, MARKS).verdict is Verdict.STABLE


def test_without_full_marks_nothing_is_said(frozen: object) -> None:
    assert judge(frozen(0.15, 40, 120), JudgeSettings()).verdict is Verdict.STABLE  # type: ignore[operator]
