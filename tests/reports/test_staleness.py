"""The staleness bias folded over cycles, its card and its curve."""

import dataclasses

import numpy as np
import pytest

from reports.cards import document_cards
from reports.cards.blocks import Figure, Paragraph, Table
from reports.figures import describe, keys_of
from reports.recorded import Bias
from reports.staleness import MOST_LAGS, fold, folded, longest_record, probed
from reports.view import StudyView


def bias(updates: int, S: int, slope: float, noise: float = 0.0) -> Bias:
    update = np.arange(updates, dtype=float)
    lag = update % S
    scatter = np.random.default_rng(0).normal(0, noise, updates)
    return Bias(update, lag, (slope * lag) ** 2 + scatter, np.full(updates, 4.0))


def test_zero_at_lag_zero_and_growing_with_the_lag() -> None:
    curve = fold([bias(64, 8, 0.1)])
    assert curve is not None
    assert curve.bias == pytest.approx(0.1 * np.arange(8))
    assert curve.full == 2.0
    assert curve.rows == 64


def test_squares_are_averaged_before_the_root() -> None:
    """Noise of either sign cancels: 4000 rows a lag leave 0.3 / sqrt(4000) < 0.005 around 0.01, so below 0.13."""
    curve = fold([bias(8000, 2, 0.1, noise=0.3)])
    assert curve is not None
    assert curve.bias[1] == pytest.approx(0.1, abs=0.03)
    assert np.all(curve.low <= curve.bias)
    assert np.all(curve.bias <= curve.high)


def test_many_lags_are_averaged_in_bins_beside_lag_zero() -> None:
    curve = fold([bias(512, 256, 0.01)])
    assert curve is not None
    assert curve.lag.size <= MOST_LAGS + 1
    assert curve.lag[0] == 0
    assert curve.bias[0] == 0


def test_rows_that_overflowed_do_not_count() -> None:
    broken = bias(8, 4, 0.1)
    broken.bias_sq[:] = np.nan
    assert fold([broken]) is None


def test_a_dead_policy_is_left_out(view: StudyView) -> None:
    key = next(k for k in view.keys() if k[0] == "none")  # noqa: SIM118
    for row, record in probed(view, key):
        onset = row.verdict.onset_updates
        assert onset is None or record.update.max() < onset[0]
    found = longest_record(view, key)
    assert found is not None
    assert found[0].verdict.verdict.is_survivor
    assert all(S >= 1 and eta > 0 for S, eta in folded(view, key))


def test_card_with_and_without_the_probe(view: StudyView) -> None:
    def card(study: StudyView) -> tuple[object, ...]:
        return next(c for c in document_cards(study) if c.slug == "staleness").blocks

    assert [type(block) for block in card(view)] == [Figure, Figure, Table]
    never = dataclasses.replace(view, runs=tuple(dataclasses.replace(r, recorded=None) for r in view.runs))
    (only,) = card(never)
    assert isinstance(only, Paragraph)
    assert "probe.staleness_every" in only.text


def test_described_in_numbers(view: StudyView) -> None:
    assert "at lag 0" in describe(view, "bias", keys_of(view, "bias"))
    assert "S = " in describe(view, "sawtooth", keys_of(view, "sawtooth"))
