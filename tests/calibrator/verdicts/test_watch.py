"""The online rule on simulated runs with settings of their own: nobody healthy is ended, the dead are found in time."""

from __future__ import annotations

import numpy as np
import pytest

from calibrator.simulator.policy import Death, Habits
from calibrator.simulator.runs import Setting, simulate
from calibrator.verdicts.judge import judge
from calibrator.verdicts.settings import JudgeSettings
from calibrator.verdicts.types import Verdict
from calibrator.verdicts.watch import first_call

LOOKS = range(8, 513, 8)
PARTIAL = Death(residue=(0.1, 0.3))
LEARNED = Habits(start=(0.3, 0.6), top=(0.6, 0.9), learning=(10.0, 60.0), wander=(0.05, 0.2), dips=0.0)


@pytest.mark.parametrize("S", [1, 16, 64])
@pytest.mark.parametrize("probe_every", [0, 8])
def test_runs_with_dips_are_left_alone(S: int, probe_every: int) -> None:
    batch = simulate(Setting(updates=512, S=S, probe_every=probe_every), range(100, 106))
    for run in range(6):
        curve, settings = batch.curve(run), JudgeSettings(sync_interval=S)
        assert first_call(curve, settings, LOOKS, thin=3) is None
        assert judge(curve, settings).verdict is not Verdict.COLLAPSED


@pytest.mark.parametrize("death", [Death(), PARTIAL], ids=["deep", "partial"])
@pytest.mark.parametrize(("S", "probe_every"), [(1, 0), (1, 8), (16, 8), (64, 0), (64, 8)])
def test_collapses_are_found_in_time(death: Death, S: int, probe_every: int) -> None:
    setting = Setting(updates=512, S=S, probe_every=probe_every, habits=LEARNED, death=death)
    onsets = np.array([200.0, 211.0, 250.0])
    batch = simulate(setting, range(3), deaths=onsets)
    for run, onset in enumerate(onsets):
        called = first_call(batch.curve(run), JudgeSettings(sync_interval=S), LOOKS)
        assert called is not None
        assert onset < called[0] <= onset + max(3 * S, 64)
        assert called[1].onset_updates is not None
        low, high = called[1].onset_updates
        assert low - S <= onset <= high


def test_looks_that_are_left_out_change_nothing() -> None:
    setting = Setting(updates=512, S=4, probe_every=8)
    deaths = np.array([np.nan, 50.0, 200.0, 333.0, np.nan, 440.0])
    batch = simulate(setting, range(6), deaths=deaths)
    for run in range(6):
        curve, settings = batch.curve(run), JudgeSettings(sync_interval=4)
        assert first_call(curve, settings, LOOKS) == first_call(curve, settings, LOOKS, thin=3)


def test_a_dip_of_the_length_of_a_collapse_is_ended_and_a_shorter_one_is_not() -> None:
    def down(length: int) -> object:
        def reshape(_: np.random.Generator, level: np.ndarray) -> tuple[np.ndarray, float]:
            inside = (np.arange(level.size) >= 200) & (np.arange(level.size) < 200 + length)
            return np.where(inside, 0.05 * level, level), np.nan

        setting = Setting(updates=512, habits=LEARNED)
        return first_call(simulate(setting, [0], reshape=reshape).curve(0), JudgeSettings(), LOOKS)

    assert down(30) is None
    assert down(80) is not None
