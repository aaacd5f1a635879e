"""What must hold for any curve."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calibrator.runlogs.curve import Curve, Series
from calibrator.runlogs.own import curve_from_rows
from calibrator.simulator.log import rows
from calibrator.simulator.runs import Setting, Simulated, simulate
from calibrator.verdicts.judge import JudgeSettings, judge, judge_so_far
from calibrator.verdicts.types import Verdict

Maker = Callable[..., Curve]
shared_fixture = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

shapes = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 10**6),
        "S": st.sampled_from([1, 3, 4, 16, 64]),
        "updates": st.integers(1, 300),
        "death": st.none() | st.integers(0, 250),
        "dead": st.sampled_from([0.0, 0.02, 0.3]),
        "slope": st.sampled_from([1.0, 8.0, 60.0]),
        "dips": st.sampled_from([0.0, 10.0]),
        "start": st.floats(0.02, 0.6),
        "probe_every": st.sampled_from([0, 8, 32]),
    }
)


def affine(series: Series, factor: float, shift: float) -> Series:
    return replace(series, value=factor * series.value + shift, se=factor * series.se)


@shared_fixture
@given(
    shape=shapes, factor=st.sampled_from([1e-3, 0.5, 3.0, 3000.0]), shift=st.sampled_from([-4.0, 0.0, 17.3])
)
def test_verdict_is_invariant_under_affine_rewards(
    run: Maker, shape: dict[str, Any], factor: float, shift: float
) -> None:
    curve = run(**shape)
    probes = affine(curve.probes, factor, shift) if curve.probes is not None else None
    other = replace(curve, rewards=affine(curve.rewards, factor, shift), probes=probes)
    S = shape["S"]
    first = judge(curve, JudgeSettings(sync_interval=S))
    second = judge(other, JudgeSettings(sync_interval=S, reward_floor=shift))
    assert (first.verdict, first.onset_updates) == (second.verdict, second.onset_updates)
    assert [item.code for item in first.evidence] == [item.code for item in second.evidence]


@shared_fixture
@given(shape=shapes)
def test_onset_and_cumulative_rate_are_ordered(run: Maker, shape: dict[str, Any]) -> None:
    curve = run(**shape)
    verdict = judge(curve, JudgeSettings(sync_interval=shape["S"]))
    assert verdict.verdict.is_event == (verdict.onset_updates is not None)
    if verdict.onset_updates is None:
        return
    low, high = verdict.onset_updates
    assert 0 <= low < high <= curve.updates
    assert verdict.cumulative_lr_at_onset is not None
    assert verdict.cumulative_lr_total is not None
    assert 0 <= verdict.cumulative_lr_at_onset[0] < verdict.cumulative_lr_at_onset[1]
    assert verdict.cumulative_lr_at_onset[1] <= verdict.cumulative_lr_total * (1 + 1e-12)


@shared_fixture
@given(shape=shapes)
def test_what_is_certain_online_stands_when_the_run_is_ended(run: Maker, shape: dict[str, Any]) -> None:
    curve = run(**shape)
    online = judge_so_far(curve, JudgeSettings(sync_interval=shape["S"]))
    if online is not None:
        assert online == judge(curve, JudgeSettings(sync_interval=shape["S"], horizon=10**6, ended="stopped"))


@shared_fixture
@given(shape=shapes)
def test_order_of_observations_and_input_do_not_matter(run: Maker, shape: dict[str, Any]) -> None:
    curve = run(**shape)
    before = curve.rewards.value.copy()
    order = np.random.default_rng(0).permutation(curve.updates)
    # Rows of one version are exchangeable for the level; only the version and the time count.
    order = order[np.argsort(curve.rewards.version[order], kind="stable")]
    rewards = Series("reward", *(part[order] for part in _parts(curve.rewards)))
    one = judge(curve, JudgeSettings(sync_interval=shape["S"]))
    two = judge(replace(curve, rewards=rewards), JudgeSettings(sync_interval=shape["S"]))
    if shape["S"] == 1:
        assert one == two
    np.testing.assert_array_equal(before, curve.rewards.value)


def _parts(series: Series) -> tuple[np.ndarray, ...]:
    return series.version, series.value, series.se, series.seen


simulated = st.builds(
    lambda S, updates, death, seed, probe_every: simulate(
        Setting(updates=updates, S=S, probe_every=probe_every),
        [seed],
        deaths=np.array([death if death < updates else np.nan]),
    ),
    S=st.sampled_from([1, 4, 16]),
    updates=st.integers(20, 300),
    death=st.floats(1, 300).map(round),
    seed=st.integers(0, 10**6),
    probe_every=st.sampled_from([0, 8]),
)


@shared_fixture
@given(batch=simulated, chance=st.integers(0, 10**6))
def test_repeated_and_reordered_rows_change_nothing(batch: Simulated, chance: int) -> None:
    settings = JudgeSettings(sync_interval=batch.setting.S)
    told, rng = rows(batch, 0), np.random.default_rng(chance)
    again = [told[index] for index in rng.integers(len(told), size=len(told) // 2)]
    mixed = [*told, *again]
    one = judge(curve_from_rows(told), settings)
    two = judge(curve_from_rows([mixed[index] for index in rng.permutation(len(mixed))]), settings)
    assert one == two.model_copy(update={"warnings": one.warnings})


@shared_fixture
@given(batch=simulated)
def test_a_run_as_it_stood_earlier_is_a_prefix(batch: Simulated) -> None:
    curve = batch.curve(0)
    clock = [curve.cumulative_lr(version / 2) for version in range(2 * curve.updates + 1)]
    assert np.all(np.diff(clock) >= 0)
    earlier = curve.until(curve.updates // 2)
    assert earlier.cumulative_lr(earlier.updates) == pytest.approx(curve.cumulative_lr(earlier.updates))
    assert np.all(earlier.rewards.seen <= earlier.updates)
    assert judge(earlier, JudgeSettings(sync_interval=batch.setting.S)).updates == earlier.updates


finite = st.floats(-1e100, 1e100)


@st.composite
def any_curve(draw: st.DrawFn) -> Curve:
    updates = draw(st.integers(0, 60))

    def series(name: str) -> Series:
        size = draw(st.integers(0, 60)) if updates else 0
        column = st.lists(finite | st.just(float("nan")), min_size=size, max_size=size)
        version = sorted(draw(st.lists(st.integers(0, updates), min_size=size, max_size=size)))
        value, se = np.array(draw(column)), np.abs(np.array(draw(column)))
        return Series(name, np.array(version, dtype=float), value, se, np.array(version, dtype=float) + 1)

    rates = draw(st.lists(st.floats(0, 1) | st.just(float("nan")), min_size=updates, max_size=updates))
    witness = draw(st.lists(finite | st.just(float("nan")), min_size=updates, max_size=updates))
    return Curve(
        updates=updates,
        learning_rate=np.array(rates),
        rewards=series("reward"),
        probes=draw(st.sampled_from([None, series("probe")])),
        others=(series("accuracy"),),
        witnesses={"kl": np.array(witness), "grad_cosine": np.array(witness)},
        non_finite_update=draw(st.none() | st.integers(0, max(0, updates - 1))) if updates else None,
    )


@settings(max_examples=150, deadline=None)
@given(curve=any_curve(), S=st.sampled_from([1, 4, 64]), horizon=st.none() | st.integers(1, 100))
@pytest.mark.filterwarnings("error")
def test_no_curve_raises(curve: Curve, S: int, horizon: int | None) -> None:
    told = JudgeSettings(sync_interval=S, horizon=horizon)
    assert judge(curve, told).verdict in Verdict
    judge_so_far(curve, told)
