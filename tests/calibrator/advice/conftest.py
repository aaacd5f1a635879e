"""Posteriors with known limits, and fitted strata around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from calibrator.advice.cost import CostModel
from calibrator.laws.fit import FittedStratum
from calibrator.laws.posterior import CEILING, CONSTANT, POWER, Posterior
from calibrator.laws.types import Finding, Identifiable, Run, StratumFit

MakePosterior = Callable[..., Posterior]
MakeFitted = Callable[..., FittedStratum]


@pytest.fixture(scope="session")
def make_posterior() -> MakePosterior:
    """Draws around one boundary; `spread` is the standard deviation of its place and of log B."""

    def build(
        boundary: int = POWER,
        *,
        C: float = 0.02,
        alpha: float = 1.0,
        eta_0: float = 5e-3,
        sigma_C: float = 0.25,
        B: float = 0.05,
        sigma_B: float = 0.3,
        spread: float = 0.0,
        draws: int = 400,
    ) -> Posterior:
        place, budget = np.random.default_rng(0).normal(scale=spread, size=(2, draws))
        missing = np.full(draws, np.nan)
        return Posterior(
            boundary=np.full(draws, boundary, dtype=np.int64),
            log_C=missing if boundary == CONSTANT else np.log(C) + place,
            alpha=np.full(draws, alpha) if boundary == POWER else missing,
            log_eta_0=missing if boundary == POWER else np.log(eta_0) + place,
            sigma_C=np.full(draws, sigma_C),
            log_B=np.log(B) + budget,
            sigma_B=np.full(draws, sigma_B),
        )

    return build


@pytest.fixture(scope="session")
def mixed(make_posterior: MakePosterior) -> Posterior:
    """The three boundaries in one posterior, as a fit gives it."""
    parts = [make_posterior(boundary, spread=0.3) for boundary in (POWER, CEILING, CONSTANT)]
    names = Posterior.__dataclass_fields__
    return Posterior(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def a_run(interval: int, rate: float, *, verdict: str = "stable", updates: int = 400) -> Run:
    dead = verdict == "collapsed"
    return Run(
        run=f"S{interval}-{rate:g}-{verdict}",
        estimator="gmc",
        sync_interval=interval,
        max_lag=interval - 1,
        learning_rate=rate,
        updates=updates,
        verdict=verdict,
        cumulative_lr=rate * updates,
        cumulative_lr_onset_low=0.5 * rate * updates if dead else None,
        cumulative_lr_onset_high=0.6 * rate * updates if dead else None,
    )


@pytest.fixture(scope="session")
def make_fitted() -> MakeFitted:
    """A stratum with this posterior; by default runs at S = 4, 16 and 64 on both sides of eta = C/S, C = 0.02."""

    def build(
        posterior: Posterior | None, runs: Sequence[Run] | None = None, findings: Sequence[Finding] = ()
    ) -> FittedStratum:
        if runs is None:
            runs = [
                a_run(S, 0.02 / S * factor, verdict="collapsed" if factor > 1 else "stable")
                for S in (4, 16, 64)
                for factor in (0.25, 2.0)
            ]
        events = sum(run.verdict.is_event for run in runs)
        summary = StratumFit(
            estimator="gmc",
            runs=len(runs),
            events=events,
            survivors=len(runs) - events,
            excluded=0,
            identifiable=Identifiable(C=True, alpha=True, B=True),
            longest_cumulative_lr=max(run.cumulative_lr for run in runs),
            findings=list(findings),
        )
        return FittedStratum(summary, posterior, tuple(runs))

    return build


@pytest.fixture(scope="session")
def cost() -> CostModel:
    return CostModel(
        generate=0.05,
        score=0.01,
        learn=0.06,
        synchronize=0.4,
        origin="measured",
        prompts_per_update=8,
        group_size=16,
        response_length=9,
    )
