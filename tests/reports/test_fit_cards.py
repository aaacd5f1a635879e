"""Cards of a fit alone."""

from __future__ import annotations

from calibrator.laws.types import (
    Estimate,
    EtaMax,
    FitResult,
    Identifiable,
    LawTest,
    Limit,
    Outlook,
    StratumFit,
)
from reports.cards.blocks import Checks, Table
from reports.cards.fit import fit_cards

SOME = Estimate(estimate=2e-3, low=1e-3, high=4e-3)


def stratum(**changes: object) -> StratumFit:
    content = {
        "estimator": "gmc",
        "runs": 3,
        "events": 1,
        "survivors": 2,
        "excluded": 0,
        "identifiable": Identifiable(C=True, alpha=True, B=True),
        "longest_cumulative_lr": 0.3,
        "eta_max": [EtaMax(sync_interval=1, effective_interval=5, eta_max=SOME)],
    }
    return StratumFit.model_validate(content | changes)


def titles(fit: StratumFit) -> list[str]:
    """Columns of the table of rates."""
    (card,) = [card for card in fit_cards(FitResult(strata=[fit])) if card.slug == "outlook-0"]
    table = card.blocks[0]
    assert isinstance(table, Table)
    assert all(len(row) == len(table.columns) for row in table.rows)
    return [column.title for column in table.columns]


def test_columns_without_content_are_left_out() -> None:
    assert titles(stratum()) == ["S", "S_eff", "eta_max [90 %]"]
    lockstep = [EtaMax(sync_interval=5, effective_interval=5, eta_max=SOME)]
    limit = Limit(sync_interval=5, learning_rate=1e-3, collapse_probability=None)
    ahead = Outlook(horizon=None, risk=0.05, rule="stable", limits=[limit])
    assert titles(stratum(eta_max=lockstep, outlook=ahead)) == ["S", "eta_max [90 %]", "allowed eta"]
    sure = limit.model_copy(update={"collapse_probability": SOME})
    ahead = ahead.model_copy(update={"horizon": 400, "limits": [sure]})
    assert titles(stratum(eta_max=lockstep, outlook=ahead))[-1] == "P(collapse by T) there"


def test_a_rejected_law_is_said_once() -> None:
    sentence = "beta = 1 is rejected: 0.5 (0.3 to 0.8)."
    test = LawTest(law="beta = 1", outcome="rejected", sentence=sentence)
    fit = stratum(tests=[test], findings=[{"code": "beta_not_one", "sentence": sentence}])
    said = [
        check.sentence
        for card in fit_cards(FitResult(strata=[fit]))
        for block in card.blocks
        if isinstance(block, Checks)
        for check in block.items
    ]
    assert said.count(sentence) == 1
