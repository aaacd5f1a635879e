"""How often a healthy run is ended by mistake, and how soon a dead one is found (simulated)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from calibrator.runlogs.curve import Curve
from calibrator.verdicts.judge import JudgeSettings, judge, judge_so_far
from calibrator.verdicts.types import RunVerdict, Verdict

Until = Callable[[Curve, int], Curve]
Maker = Callable[..., Curve]


def watched(
    curve: Curve, until: Until, settings: JudgeSettings, every: int
) -> Iterator[tuple[int, RunVerdict]]:
    """What the running trial is told, every few updates."""
    for update in range(every, curve.updates + 1, every):
        verdict = judge_so_far(until(curve, update), settings)
        if verdict is not None:
            yield update, verdict


@pytest.mark.slow
@pytest.mark.parametrize("probe_every", [0, 8])
@pytest.mark.parametrize("S", [1, 4, 16, 64])
def test_healthy_noisy_runs_are_left_alone(run: Maker, until: Until, S: int, probe_every: int) -> None:
    settings = JudgeSettings(sync_interval=S)
    for seed in range(12):
        rng = np.random.default_rng(seed)
        shape = {
            "dips": float(rng.choice([0, 2, 4])),
            "longest": max(40, 1.5 * S),
            "start": float(rng.uniform(0.03, 0.6)),
            "top": float(rng.uniform(0.65, 0.98)),
            "wander": float(rng.choice([0.2, 0.8])),
        }
        curve = run(seed, S, 1000, probe_every=probe_every, **shape)
        assert next(watched(curve, until, settings, 20), None) is None
        assert judge(curve, settings).verdict is not Verdict.COLLAPSED


@pytest.mark.parametrize("probe_every", [0, 8])
@pytest.mark.parametrize("S", [1, 4, 16, 64])
def test_a_dead_run_is_found_within_three_syncs(run: Maker, until: Until, S: int, probe_every: int) -> None:
    settings, every = JudgeSettings(sync_interval=S), 4
    for seed in range(8):
        rng = np.random.default_rng(seed)
        death, slope = int(rng.integers(1, 300)), float(rng.choice([1, 4]))
        limit = death + max(3 * S, 64) + every
        curve = run(
            seed,
            S,
            limit,
            death=death,
            slope=slope,
            dead=float(rng.choice([0, 0.02])),
            wander=0.5,
            probe_every=probe_every,
        )
        assert judge_so_far(until(curve, death), settings) is None
        verdict = judge_so_far(curve, settings)
        assert verdict is not None
        assert verdict.onset_updates is not None
        assert verdict.onset_updates[0] - 3 <= death + slope * np.log(2) <= verdict.onset_updates[1] + 3
