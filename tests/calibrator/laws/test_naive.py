"""The logistic regression that ignores censoring."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibrator.laws.naive import logistic_boundary, naive_model
from calibrator.laws.table import read_runs
from calibrator.laws.types import Run

Simulate = Callable[..., list[Run]]


def test_one_outcome_gives_nothing(tables: Path) -> None:
    assert logistic_boundary(read_runs(tables / "too-short-to-tell.csv")) is None
    assert naive_model(None) is None


def test_it_calls_short_runs_stable(tables: Path) -> None:
    """Cut every survivor to a tenth: the naive answer does not notice, which is why the report shows it."""
    runs = read_runs(tables / "law-holds.csv")
    cut = [
        run if run.verdict.is_event else run.model_copy(update={"cumulative_lr": run.cumulative_lr / 10})
        for run in runs
    ]
    assert naive_model(logistic_boundary(cut)) == naive_model(logistic_boundary(runs))


def test_with_many_runs_it_finds_the_boundary(simulate: Simulate) -> None:
    model = naive_model(logistic_boundary(simulate(1, 0, log_C=np.log(0.013), alpha=1.0, repeats=20)))
    assert model is not None
    assert model.weight == 0.0
    assert model.alpha is not None
    assert model.C is not None
    # 480 runs, nearly all long enough: the ridge and the quantised onsets leave some ten per cent
    assert model.alpha.estimate == pytest.approx(1.0, abs=0.15)
    assert model.C.estimate == pytest.approx(0.013, rel=0.25)
    assert model.alpha.low < model.alpha.estimate < model.alpha.high


def test_a_rate_that_helps_gives_nothing(tables: Path) -> None:
    runs = read_runs(tables / "law-holds.csv")
    upside_down = [run.model_copy(update={"learning_rate": 1e-14 / run.learning_rate}) for run in runs]
    assert logistic_boundary(upside_down) is None


def test_a_rate_that_hardly_matters_gives_no_model(tables: Path) -> None:
    runs = read_runs(tables / "law-holds.csv")
    naive = logistic_boundary(runs)
    assert naive is not None
    assert naive_model(naive) is not None
    assert naive_model(replace(naive, covariance=1e6 * naive.covariance)) is None
