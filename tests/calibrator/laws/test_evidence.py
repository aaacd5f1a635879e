"""What tested pairs show by themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
from scipy.stats import binom

from calibrator.laws.evidence import evidence, realised_intervals, seen_pairs, share
from calibrator.laws.fit import fit_runs
from calibrator.laws.table import read_runs
from calibrator.laws.types import Run

TABLES = Path(__file__).parents[2] / "data" / "tables"


@pytest.mark.parametrize(("count", "of"), [(1, 3), (2, 5), (7, 20)])
def test_a_share_has_the_exact_binomial_interval(count: int, of: int) -> None:
    """At each end the count that was seen, or one further out, has a chance of 5 %."""
    found = share(count, of)
    assert binom.sf(count - 1, of, found.low) == pytest.approx(0.05, abs=1e-4)
    assert binom.cdf(count, of, found.high) == pytest.approx(0.05, abs=1e-4)


def test_none_and_all_are_bounded_on_one_side() -> None:
    assert (share(0, 4).low, share(4, 4).high) == (0.0, 1.0)
    assert (1 - share(0, 4).high) ** 4 == pytest.approx(0.1, abs=1e-4)
    assert share(4, 4).low ** 4 == pytest.approx(0.1, abs=1e-4)


def test_a_refused_fit_says_what_each_pair_showed() -> None:
    fit = fit_runs(read_runs(TABLES / "too-short-to-tell.csv"))[0].summary
    assert len(fit.tested) == 15
    first = fit.tested[0]
    assert (first.sync_interval, first.learning_rate, first.runs, first.collapsed) == (32, 4e-7, 1, 0)
    assert first.cumulative_lr == pytest.approx(60 * 4e-7)
    assert first.collapse_probability.high == pytest.approx(0.9)
    answered = fit_runs(read_runs(TABLES / "law-holds.csv"))[0].summary
    assert answered.tested == []


def test_pairs_are_watched_up_to_their_shortest_survivor() -> None:
    def run(name: str, verdict: str, L: float) -> Run:
        return Run(
            run=name,
            estimator="gmc",
            sync_interval=4,
            max_lag=5,
            learning_rate=1e-3,
            updates=100,
            verdict=verdict,
            cumulative_lr=L,
            cumulative_lr_onset_high=0.02 if verdict == "collapsed" else None,
        )

    seen = evidence([run("a", "stable", 0.3), run("b", "stable", 0.1), run("c", "collapsed", 0.05)])
    (pair,) = seen_pairs(seen)
    assert (pair.runs, pair.collapsed, pair.cumulative_lr) == (3, 1, 0.1)
    late = run("d", "collapsed", 0.4).model_copy(
        update={"cumulative_lr_onset_low": 0.2, "cumulative_lr_onset_high": 0.3}
    )
    (pair,) = seen_pairs(evidence([run("b", "stable", 0.1), late]))
    assert (pair.runs, pair.collapsed) == (2, 0)  # it was alive at L = 0.1
    assert realised_intervals(seen.used) == {4: 6}
