from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrator.laws.fit import design_posterior, fit_runs
from calibrator.laws.posterior import POWER, Posterior
from calibrator.laws.types import Run
from calibrator.sweep import design
from calibrator.sweep.design import DesignSpace, ProposedRun
from calibrator.verdicts.types import Verdict
from trainer.config import cumulative_learning_rate

SPACE = DesignSpace(
    estimator="gmc", sync_intervals=(4, 16, 64), learning_rates=(4e-4, 1.28e-2), longest=400, warmup=10
)
B, SIGMA = 0.15, 0.25


def eta_max(S: int) -> float:
    return 1 / (1 / 5.5e-3 + (S - 1) / 0.17)


def outcome(run: ProposedRun, *, dies: bool, onset: float = B) -> Run:
    """The run as judged: dead at L = `onset` and ended 24 updates later, or alive to its end."""

    def reached(version: int) -> float:
        return cumulative_learning_rate(version, peak=run.learning_rate, warmup=SPACE.warmup)

    last = next((v for v in range(run.updates) if reached(v) >= onset), run.updates)
    dies = dies and last + 24 <= run.updates
    updates = last + 24 if dies else run.updates
    return Run(
        run=f"trial {run.seed}",
        estimator=run.estimator,
        sync_interval=run.sync_interval,
        max_lag=run.sync_interval - 1,
        learning_rate=run.learning_rate,
        seed=run.seed,
        updates=updates,
        verdict="collapsed" if dies else "stable",
        cumulative_lr=reached(updates),
        cumulative_lr_onset_low=reached(max(last - 8, 0)) if dies else None,
        cumulative_lr_onset_high=reached(last) if dies else None,
    )


def simulated(run: ProposedRun, rng: np.random.Generator) -> Run:
    dies = math.log(run.learning_rate / eta_max(run.sync_interval)) + SIGMA * rng.normal() > 0
    return outcome(run, dies=dies, onset=B * math.exp(0.3 * rng.normal()))


def study(seed: int, *, budget: int) -> list[Run]:
    rng = np.random.default_rng(seed)
    proposed = design.first_round(SPACE)
    runs: list[Run] = []
    while proposed:
        runs += [simulated(run, rng) for run in proposed]
        left = budget - sum(run.updates for run in runs)
        wanted = design.next_round(runs, SPACE, round_size=2)
        proposed = [run for run in wanted if run.updates <= left / len(wanted)]
    return runs


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    first = design.first_round(SPACE)
    return [outcome(run, dies=run.learning_rate > eta_max(run.sync_interval)) for run in first]


@pytest.fixture(scope="module")
def posterior(runs: list[Run]) -> Posterior:
    found = design_posterior(runs)
    assert found is not None
    return found


def test_first_round_varies_eta_and_s_eta_at_every_interval() -> None:
    proposed = design.first_round(SPACE)
    rates = [run.learning_rate for run in proposed]
    products = [run.learning_rate * run.sync_interval for run in proposed]
    assert [run.sync_interval for run in proposed] == [4, 4, 16, 16, 64, 64]
    assert len(set(rates)) >= 4
    assert abs(np.corrcoef(np.log(rates), np.log(products))[0, 1]) < 0.9
    assert all(4e-4 <= rate <= 1.3e-2 for rate in rates)
    centres = [np.mean(np.log(rates[i : i + 2])) for i in (0, 2, 4)]
    assert centres == sorted(centres, reverse=True)


@settings(deadline=None)
@given(
    intervals=st.sets(st.integers(1, 256), min_size=1, max_size=5),
    low=st.floats(1e-7, 1e-3),
    ratio=st.floats(4, 1000),
    count=st.integers(1, 4),
)
def test_first_round_of_any_space_is_within_it(
    intervals: set[int], low: float, ratio: float, count: int
) -> None:
    space = replace(SPACE, sync_intervals=tuple(intervals), learning_rates=(low, low * ratio))
    proposed = design.first_round(space, rates_per_interval=count)
    assert len(proposed) == count * len(intervals)
    assert {run.sync_interval for run in proposed} == intervals
    assert all(low * 0.95 <= run.learning_rate <= low * ratio * 1.05 for run in proposed)
    assert all(0 < run.updates <= space.longest for run in proposed)
    assert len({run.seed for run in proposed}) == len(proposed)


@settings(deadline=None)
@given(
    eta=st.floats(1e-5, 1e-1), S=st.integers(1, 100), target=st.floats(1e-4, 10), warmup=st.integers(0, 50)
)
def test_run_length_reaches_the_target_or_the_horizon(eta: float, S: int, target: float, warmup: int) -> None:
    updates = design.run_length(eta, S, target_cumulative_lr=target, horizon=400, warmup=warmup, window=24)
    noticed = cumulative_learning_rate(updates - 24, peak=eta, warmup=warmup)
    assert updates == 400 or noticed >= target * (1 - 1e-9)
    assert updates == 400 or (updates % S == 0 and updates >= 3 * S)


def test_proposals_say_at_which_l_they_stop(runs: list[Run]) -> None:
    for run in [*design.first_round(SPACE), *design.next_round(runs, SPACE, round_size=4)]:
        assert run.stopping_cumulative_lr is not None
        reached = cumulative_learning_rate(run.updates, peak=run.learning_rate, warmup=SPACE.warmup)
        bound = run.updates >= min(SPACE.longest, design.first_length(SPACE)) - run.sync_interval
        assert bound or reached >= run.stopping_cumulative_lr * (1 - 5e-3)


def test_a_larger_rate_needs_no_more_updates() -> None:
    lengths = [
        design.run_length(eta, 4, target_cumulative_lr=0.2, horizon=400, warmup=10)
        for eta in (1e-4, 1e-3, 3e-3, 1e-2)
    ]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] == 400


def test_all_stable_goes_fourfold_up_and_all_collapsed_fourfold_down() -> None:
    first = design.first_round(SPACE)
    rates = {S: [run.learning_rate for run in first if run.sync_interval == S] for S in (4, 16, 64)}
    alive = design.next_round([outcome(run, dies=False) for run in first], SPACE, round_size=3)
    dead = design.next_round([outcome(run, dies=True, onset=0.02) for run in first], SPACE, round_size=3)
    assert {run.sync_interval for run in alive} == {run.sync_interval for run in dead} == {4, 16, 64}
    for run in alive:
        assert run.learning_rate == pytest.approx(4 * max(rates[run.sync_interval]), rel=0.05)
    for run in dead:
        assert run.learning_rate == pytest.approx(min(rates[run.sync_interval]) / 4, rel=0.05)


def test_while_nothing_collapses_l_grows_fourfold_at_the_same_updates() -> None:
    """Fourfold rates at a fixed target would shorten the runs, and L would never reach a large budget."""
    first = design.first_round(SPACE)
    runs = [outcome(run, dies=False) for run in first]
    again = design.next_round(runs, SPACE, round_size=3)
    longest = max(run.cumulative_lr for run in runs)
    assert all(run.learning_rate * run.updates > 3 * longest for run in again)
    assert max(run.updates for run in again) <= SPACE.longest


def test_first_round_is_short() -> None:
    space = replace(SPACE, longest=2000)
    assert max(run.updates for run in design.first_round(space)) <= 500
    tight = replace(SPACE, longest=100)
    assert max(run.updates for run in design.first_round(tight)) == 100


def test_patience_ends_once_the_pair_can_be_judged() -> None:
    known = outcome(ProposedRun("gmc", 4, 1e-3, 0, 400, ""), dies=False)
    unclear = known.model_copy(update={"verdict": Verdict.INCONCLUSIVE})
    pair = (4, 1e-3)
    assert design._patience([], pair) == 1
    assert design._patience([unclear], pair) == 2
    assert design._patience([unclear, unclear], pair) == 4
    assert design._patience([unclear, known], pair) == 1


def test_bracket_reads_bare_verdicts() -> None:
    alive = ProposedRun("gmc", 4, 1e-3, 0, 400, "")
    dead = ProposedRun("gmc", 16, 8e-3, 1, 400, "")
    assert design.bracket([], 4) is None
    assert design.bracket([outcome(alive, dies=False)], 4) == 4e-3
    assert design.bracket([outcome(alive, dies=False)], 64) == 4e-3
    assert design.bracket([outcome(dead, dies=True)], 16) == 2e-3
    untrained = outcome(alive, dies=False).model_copy(
        update={"verdict": Verdict.UNTRAINED, "sync_interval": 16}
    )
    assert design.bracket([untrained], 16) == 4e-3
    assert design.bracket([untrained, outcome(dead, dies=True)], 16) == 2.8e-3


def test_without_any_usable_run_the_middle_is_tried_longer_each_time() -> None:
    first = design.first_round(SPACE)
    unclear = [
        run.model_copy(update={"verdict": Verdict.INCONCLUSIVE})
        for run in (outcome(old, dies=False) for old in first)
    ]
    again = design.next_round(unclear, SPACE, round_size=3)
    assert {run.learning_rate for run in again} == {2.3e-3}
    assert not {run.seed for run in again} & {run.seed for run in first}
    assert min(run.updates for run in again) > max(run.updates for run in first)


def test_next_round_is_deterministic_and_ignores_the_order(runs: list[Run]) -> None:
    forward = design.next_round(runs, SPACE, round_size=4)
    backward = design.next_round(runs[::-1], SPACE, round_size=4)
    assert forward == backward == design.next_round(runs, SPACE, round_size=4)


def test_next_round_gives_new_seeds_and_stays_within_the_space(runs: list[Run]) -> None:
    proposed = design.next_round(runs, SPACE, round_size=6)
    seeds = [run.seed for run in proposed]
    assert len(set(seeds)) == 6
    assert not set(seeds) & {run.seed for run in runs}
    for run in proposed:
        assert run.sync_interval in SPACE.sync_intervals
        assert run.learning_rate == float(f"{run.learning_rate:.1e}")
        assert 1e-4 * 0.95 <= run.learning_rate <= 5.12e-2 * 1.05


def test_a_round_can_be_restricted_to_given_pairs(runs: list[Run]) -> None:
    pairs = [(4, 1e-3), (16, 2e-3), (64, 4e-3)]
    proposed = design.next_round(runs, SPACE, round_size=5, pairs=pairs)
    assert {(run.sync_interval, run.learning_rate) for run in proposed} <= set(pairs)


def test_proposals_are_near_the_boundary(runs: list[Run]) -> None:
    for run in design.next_round(runs, SPACE, round_size=4):
        assert 0.15 < run.learning_rate / eta_max(run.sync_interval) < 6


def test_proposals_scale_with_the_unit_of_the_learning_rate(runs: list[Run]) -> None:
    unit = 1e-3
    names = ("learning_rate", "cumulative_lr", "cumulative_lr_onset_low", "cumulative_lr_onset_high")
    scaled = [
        run.model_copy(update={n: getattr(run, n) and unit * getattr(run, n) for n in names}) for run in runs
    ]
    low, high = SPACE.learning_rates
    space = replace(SPACE, learning_rates=(low * unit, high * unit))
    here = design.next_round(runs, SPACE, round_size=2)
    there = design.next_round(scaled, space, round_size=2)
    for a, b in zip(here, there, strict=True):
        assert (a.sync_interval, a.updates) == (b.sync_interval, b.updates)
        assert b.learning_rate == pytest.approx(unit * a.learning_rate, rel=0.05)


def test_seeds_follow_the_position() -> None:
    space = replace(SPACE, seeds=(7, 3))
    assert [space.seed(position) for position in range(4)] == [7, 3, 8, 9]


def test_target_covers_the_budget(posterior: Posterior, runs: list[Run]) -> None:
    target = design.target_cumulative_lr(posterior, runs, SPACE)
    assert target > np.exp(np.median(posterior.log_B))
    before = design.target_cumulative_lr(None, [], SPACE)
    assert before == pytest.approx(math.sqrt(4e-4 * 1.28e-2) * (400 - SPACE.window - 4.5))


def test_weights_favour_what_could_be_recommended(posterior: Posterior) -> None:
    weights = design.recommendable(posterior, {1: 1.0, 4: 1.0, 16: 1.0, 64: 1.0}, risk=0.05)
    assert sum(weights.values()) == pytest.approx(1)
    assert weights[4] > weights[64]
    assert weights[1] == pytest.approx(0.125)
    dear = design.recommendable(posterior, {4: 1e3, 64: 1.0}, risk=0.05)
    assert dear[64] > dear[4]


def test_narrowness_of_a_known_posterior() -> None:
    D = 20_001
    place = np.linspace(-1, 1, D)
    flat = Posterior(
        boundary=np.full(D, POWER),
        log_C=place,
        alpha=np.ones(D),
        log_eta_0=np.full(D, np.nan),
        sigma_C=np.full(D, 0.2),
        log_B=np.zeros(D),
        sigma_B=np.ones(D),
    )
    assert design.narrowness(flat, 4, 0.05) == pytest.approx(math.exp(0.9), rel=1e-3)
    assert design.narrow_enough(flat, [4, 16], risk=0.05, factor=2.5)
    assert not design.narrow_enough(flat, [4], risk=0.05, factor=2.4)
    assert not design.narrow_enough(None, [4], risk=0.05, factor=100)


def test_expected_spread_never_grows_and_vanishes_for_a_telling_run(posterior: Posterior) -> None:
    draws = len(posterior.log_B)
    goal = np.where(np.arange(draws) < draws / 2, 0.0, 1.0)[:, None]
    even = np.full((1, draws), 1 / draws)
    telling, idle = goal.T, np.full((1, draws), 0.3)
    before = design._spread(even, goal)
    after = design._spread_after(even, np.vstack([telling, idle]), goal)
    assert before == pytest.approx(0.25, rel=1e-3)
    assert after[0] == pytest.approx(0, abs=1e-12)
    assert after[1] == pytest.approx(before)


@pytest.mark.parametrize("chance", [0.0, 1e-17, 1 - 1e-16, 1.0])
def test_an_outcome_that_is_certain_narrows_nothing(posterior: Posterior, chance: float) -> None:
    goals = np.stack([posterior.log_B, 7 - posterior.log_B], axis=1)
    branches = np.random.default_rng(0).uniform(size=(3, len(posterior.log_B)))
    branches /= branches.sum()
    certain = np.full((2, len(posterior.log_B)), chance)
    after = design._spread_after(branches, certain, goals)
    assert after == pytest.approx(np.tile(design._spread(branches, goals), (2, 1)), rel=1e-9)


def test_splitting_conserves_the_mass_and_bounds_the_branches() -> None:
    rng = np.random.default_rng(0)
    branches = np.full((1, 50), 1 / 50)
    for _ in range(10):
        branches = design._split(branches, rng.uniform(size=50))
    assert branches.shape[0] <= design.MAX_BRANCHES
    assert branches.sum() == pytest.approx(1)


@pytest.mark.slow
def test_simulated_studies_are_safe_and_sharp_within_3000_updates() -> None:
    """Of ten studies at least nine recommend a rate that is safe and within a factor of four of the best."""
    from calibrator.advice.rules import stable_limit

    good = 0
    for seed in range(10):
        runs = study(seed, budget=3000)
        assert sum(run.updates for run in runs) <= 3000
        fitted = fit_runs(runs)[0].posterior
        assert fitted is not None
        true = eta_max(4) * math.exp(-1.645 * SIGMA)
        good += true / 4 < stable_limit(fitted, 4, 0.05) <= true
    assert good >= 9
