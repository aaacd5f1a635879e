"""What the benchmarks of the design count: truths, looks, and runs of the grid cut short."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from calibrator.laws.types import Run
from calibrator.sweep.design import DesignSpace, ProposedRun
from calibrator.verdicts.types import Verdict


def script(name: str) -> ModuleType:
    path = Path(__file__).parent.parent / "bench" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"bench_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


designs, replay_grid = script("designs"), script("replay_grid")
SPACE = DesignSpace("gmc", (4, 64), (1e-4, 1e-2), longest=400, warmup=replay_grid.WARMUP, window=40)


@pytest.mark.parametrize("number", range(8))
def test_every_truth_has_its_boundary_inside_the_range_of_rates(number: int) -> None:
    world = designs.make_world(number)
    low, high = world.space.learning_rates
    assert high / low == pytest.approx(128)
    for S in designs.INTERVALS:
        assert low < world.truth.eta_at_risk(S) < math.exp(world.truth.log_eta_max(S)) <= high * 1.0001
    assert world.run(4, high, 3, 1000) == designs.make_world(number).run(4, high, 3, 1000)


def looks(*ratios: float) -> list[Any]:
    return [designs.Look(4 * i, 100 * i, (ratio,) * 4) for i, ratio in enumerate(ratios, start=1)]


@pytest.mark.parametrize(
    ("ratios", "reached", "first"),
    [
        ((0.2, 0.6, 0.8), 200, 200),
        ((0.6, 0.4, 0.6, 0.9), 300, 100),
        ((0.6, 1.01, 0.9), 300, 100),
        ((0.6, 0.9, 1.01), 1000, 100),
        ((0.0, 0.1), 1000, 1000),
    ],
)
def test_a_target_counts_once_it_is_reached_for_good(
    ratios: tuple[float, ...], reached: int, first: int
) -> None:
    row = designs.summary(designs.make_world(0), "ours", looks(*ratios), 1000)
    assert (row.reached, row.first) == (reached, first)


def test_one_method_is_raced_to_the_cap_and_repeats() -> None:
    world = designs.make_world(3)
    once = designs.race(world, "dense", 5000)
    assert once[-1].updates >= 5000 > once[-2].updates
    assert once == designs.race(world, "dense", 5000)


def grid_run(verdict: Verdict, *, S: int = 4, seed: int = 0, eta: float = 1e-3) -> Run:
    died = verdict is Verdict.COLLAPSED
    return Run(
        run=f"{seed}",
        estimator="gmc",
        sync_interval=S,
        max_lag=S - 1,
        learning_rate=eta,
        seed=seed,
        updates=140 if died else 384,
        verdict=verdict,
        cumulative_lr=0.1355 if died else 0.3795,
        onset_low=80.0 if died else None,
        onset_high=84.0 if died else None,
        cumulative_lr_onset_low=0.0755 if died else None,
        cumulative_lr_onset_high=0.0795 if died else None,
    )


@pytest.mark.parametrize(
    ("updates", "verdict"),
    [(140, "collapsed"), (400, "collapsed"), (124, "collapsed"), (120, "inconclusive"), (80, "stable")],
)
def test_a_run_of_the_grid_cut_short_has_the_verdict_that_it_had_there(updates: int, verdict: str) -> None:
    cut = replay_grid.cut(grid_run(Verdict.COLLAPSED), updates, SPACE)
    assert cut.verdict == verdict
    assert cut.updates == min(updates, 140)
    assert (cut.onset_low is None) == (verdict != "collapsed")
    # Ten updates of linear warm-up apply 5.5 updates' worth of the rate.
    assert cut.cumulative_lr == pytest.approx(1e-3 * (cut.updates - 4.5))


def test_stock_gives_each_run_once_and_then_the_next_nearest_point() -> None:
    near = [grid_run(Verdict.STABLE, seed=seed) for seed in range(2)]
    far = [grid_run(Verdict.COLLAPSED, seed=2, eta=4e-3)]
    grid = {(4, 1e-3): near, (4, 4e-3): far}
    stock = replay_grid.Stock(grid, 0)
    wanted = ProposedRun("gmc", 4, 1.2e-3, 0, 200, "")
    taken = [stock.take(wanted, SPACE) for _ in range(4)]
    assert {run.run for run in taken[:2]} == {"0", "1"}
    assert taken[2].run == "2"
    assert taken[3] is None
    assert stock.points() == []
    assert replay_grid.boundary(grid, 4) == 1e-3
    assert replay_grid.fatal(grid, 4) == math.inf
