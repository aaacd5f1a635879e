"""Finished curves cut at successive points: the same code as online, and what it would have changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrator.runlogs.curve import Curve
from calibrator.runlogs.own import curve_from_rows
from calibrator.sweep import replay
from calibrator.sweep.design import DesignSpace
from calibrator.sweep.replay import Replay, ReplayResult, Stop, replayed_stop
from calibrator.verdicts.judge import judge, judge_so_far
from calibrator.verdicts.settings import JudgeSettings
from calibrator.verdicts.types import Verdict

S, ETA, UPDATES = 4, 1e-3, 320
SPACE = DesignSpace(estimator="gmc", sync_intervals=(S,), learning_rates=(1e-4, 1e-2), longest=UPDATES)
SETTLED = 100 + SPACE.window
"""Updates that reach L = 0.1 at this rate, and let a late fall show."""
SETTINGS = JudgeSettings(sync_interval=S, horizon=UPDATES, full_marks=1.0)


def rows(*, down: tuple[int, int] | None = None, updates: int = UPDATES) -> list[dict[str, Any]]:
    """A run that learns, and whose policy earns next to nothing from version down[0] up to down[1]."""
    rng = np.random.default_rng(7)

    def level(version: int) -> float:
        dead = down is not None and down[0] <= version < down[1]
        return 0.02 if dead else 0.9 - 0.5 * float(np.exp(-version / 40))

    return [_row(rng, update, level) for update in range(updates)]


def _row(rng: np.random.Generator, update: int, level: Any) -> dict[str, Any]:
    version = update // S * S
    row: dict[str, Any] = {
        "update": update,
        "version": version,
        "learning_rate": ETA,
        "lag_max": update - version,
        "reward_mean": float(rng.binomial(128, level(version))) / 128,
        "reward_se": 0.03,
    }
    if update % 8 == 7:
        probe = float(rng.binomial(128, level(update + 1))) / 128
        row |= {"probe_version": update + 1, "probe_reward": probe, "probe_se": 0.03}
    return row


def stop_of(curve: Curve, *, target: float | None) -> Stop | None:
    return replayed_stop(curve, SETTINGS, learning_rate=ETA, space=SPACE, target=target)


def assert_same(cut: Curve, seen: Curve) -> None:
    for name in ("updates", "non_finite_update", "max_lag"):
        assert getattr(cut, name) == getattr(seen, name)
    assert np.array_equal(cut.learning_rate, seen.learning_rate)
    for ours, theirs in ((cut.rewards, seen.rewards), (cut.probes, seen.probes)):
        assert (ours is None) == (theirs is None)
        if ours is not None and theirs is not None:
            for name in ("version", "value", "se", "seen"):
                assert np.array_equal(getattr(ours, name), getattr(theirs, name))
    for name, column in seen.witnesses.items():
        assert np.array_equal(cut.witnesses[name], column, equal_nan=True)


@settings(deadline=None, max_examples=30, derandomize=True)
@given(updates=st.integers(1, UPDATES), fatal=st.none() | st.integers(0, UPDATES - 1))
def test_a_cut_curve_is_the_curve_of_the_rows_that_were_there(updates: int, fatal: int | None) -> None:
    log = rows(down=(120, 180))
    if fatal is not None:
        log[fatal]["grad_norm"] = float("nan")
    cut = replay.curve_until(curve_from_rows(log), updates)
    seen = curve_from_rows(log[:updates])
    assert_same(cut, seen)
    assert judge_so_far(cut, SETTINGS) == judge_so_far(seen, SETTINGS)


def test_a_run_that_went_on_after_its_collapse_ends_once_that_is_certain() -> None:
    curve = curve_from_rows(rows(down=(100, 10**6)))
    stop = stop_of(curve, target=None)
    assert stop is not None
    assert (stop.rule, stop.verdict) == ("certain", Verdict.COLLAPSED)
    assert 100 + 44 <= stop.updates <= 100 + 64
    assert judge(curve, SETTINGS).verdict is Verdict.COLLAPSED


def test_the_stop_is_where_the_trial_itself_would_have_ended() -> None:
    log = rows(down=(100, 10**6))
    asked = [n for n in range(1, UPDATES + 1) if "probe_version" in log[n - 1]]
    first = next(n for n in asked if judge_so_far(curve_from_rows(log[:n]), SETTINGS) is not None)
    stop = stop_of(curve_from_rows(log), target=None)
    assert stop is not None
    assert stop.updates == first


def test_a_dip_that_recovers_ends_nothing() -> None:
    assert stop_of(curve_from_rows(rows(down=(100, 132))), target=None) is None


def test_a_survivor_is_settled_once_l_is_reached_and_noticed() -> None:
    stop = stop_of(curve_from_rows(rows()), target=0.1)
    assert stop == Stop(rule="settled", updates=SETTLED, verdict=Verdict.STABLE)
    assert stop_of(curve_from_rows(rows()), target=10.0) is None


def test_a_collapse_after_the_settled_length_is_a_changed_verdict() -> None:
    curve = curve_from_rows(rows(down=(200, 10**6)))
    run = replayed(curve, stop_of(curve, target=0.1))
    assert run.changed
    assert run.saved == UPDATES - SETTLED
    early = curve_from_rows(rows(down=(60, 10**6)))
    assert not replayed(early, stop_of(early, target=0.3)).changed


def replayed(curve: Curve, stop: Stop | None, *, planned: int = UPDATES, name: str = "a run") -> Replay:
    return Replay(
        run=name,
        trial=0,
        estimator="gmc",
        sync_interval=S,
        learning_rate=ETA,
        planned=planned,
        updates=curve.updates,
        verdict=judge(curve, SETTINGS).verdict,
        stop=stop,
    )


@pytest.mark.parametrize(
    ("whole", "cut", "changed"),
    [
        ("stable", "stable", False),
        ("interrupted", "stable", False),
        ("collapsed", "stable", True),
        ("stable", "collapsed", True),
        ("stable", "inconclusive", True),
        ("collapsed", "diverged", True),
    ],
)
def test_survivors_count_as_the_same(whole: str, cut: str, changed: bool) -> None:
    values: Mapping[str, Any] = {
        **replayed(curve_from_rows(rows(updates=40)), None).model_dump(),
        "verdict": whole,
        "stop": {"rule": "settled", "updates": 20, "verdict": cut},
    }
    assert Replay.model_validate(values).changed is changed


def test_the_answer_in_words_counts_what_is_known_and_says_what_is_not() -> None:
    late = curve_from_rows(rows(down=(200, 10**6)))
    ended = curve_from_rows(rows(down=(60, 10**6), updates=112))
    result = ReplayResult(
        runs=[
            replayed(late, stop_of(late, target=0.1), name="late"),
            replayed(curve_from_rows(rows()), None, name="calm"),
            replayed(ended, None, name="ended"),
        ],
        stopping_cumulative_lr={"gmc": 0.1},
    )
    told, unknown = replay.summary_sentences(result)
    assert "Of the 2 runs" in told
    assert f"{UPDATES - SETTLED} of {2 * UPDATES} updates and changed 1 verdict: late." in told
    assert unknown.startswith("1 run was ended early, 208 updates before")
    assert "unknown" in unknown


def test_without_probes_the_synchronizations_are_asked() -> None:
    log = [{key: value for key, value in row.items() if "probe" not in key} for row in rows(updates=12)]
    assert replay.cut_points(curve_from_rows(log), S) == [4, 8, 12]
    assert replay.cut_points(curve_from_rows(rows(updates=20)), S) == [8, 16]
