"""Input and output of the laws: runs with verdicts in, a fit with intervals out."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from calibrator.verdicts.types import Verdict

LEVEL = 0.9
"""Credible level of every interval in `fit.json`."""

BoundaryName = Literal["power", "ceiling", "constant"]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Run(_Record):
    """One judged run, as the laws see it. Units: updates, and LR x updates for cumulative rates."""

    run: str
    """Name by which reports refer to the run."""
    estimator: str
    strata: dict[str, str] = {}
    """Further settings that separate strata (model, task, G, P, epsilon, ...); never pooled."""
    sync_interval: int
    max_lag: int
    """Largest realised lag before onset; S_eff = 1 + max_lag."""
    learning_rate: float
    """Largest applied learning rate."""
    seed: int = 0
    updates: int
    verdict: Verdict
    cumulative_lr: float
    """L after the last update."""
    onset_low: float | None = None
    onset_high: float | None = None
    """Onset in updates, in (onset_low, onset_high]; events only."""
    cumulative_lr_onset_low: float | None = None
    cumulative_lr_onset_high: float | None = None

    @property
    def effective_interval(self) -> int:
        """S_eff, in updates."""
        return 1 + self.max_lag


class Estimate(_Record):
    estimate: float
    low: float
    high: float
    level: float = LEVEL


class MaximumLikelihood(_Record):
    """Point estimates without any prior. Parameters that a boundary does not have are null."""

    log_likelihood: float
    C: float | None = None
    alpha: float | None = None
    eta_0: float | None = None
    sigma: float
    B: float
    budget_sigma: float
    open: list[str] = []
    """Parameters that the runs leave open: the likelihood still rises where the search ends, and their values here
    mean nothing. Most often `sigma`, when no two runs contradict each other."""


class BoundaryModel(_Record):
    """One of the three boundaries, fitted. Parameters that a boundary does not have are null."""

    weight: float
    """Posterior probability of this boundary among the three."""
    log_evidence: float
    sigma: Estimate
    """sigma_C: spread of the boundary between runs, in log eta."""
    C: Estimate | None = None
    alpha: Estimate | None = None
    eta_0: Estimate | None = None
    maximum_likelihood: MaximumLikelihood | None = None


class BoundaryFit(_Record):
    chosen: BoundaryName
    models: dict[BoundaryName, BoundaryModel]


class BudgetFit(_Record):
    B: Estimate
    """Collapse budget in LR x updates, at gamma = 0 and beta = 1."""
    beta: Estimate
    gamma: Estimate
    sigma: Estimate
    B_without_ceiling_deaths: Estimate | None = None
    """B from the events that are not near eta_0; null when there is no such distinction or too few events."""


class Identifiable(_Record):
    C: bool
    alpha: bool
    B: bool


class Finding(_Record):
    """A plain sentence with a stable code, for people and for programs."""

    code: str
    sentence: str


class LawTest(_Record):
    """One published exponent against the runs."""

    law: str
    """`alpha = 1`, `beta = 1` or `gamma = 0`."""
    outcome: Literal["kept", "rejected", "untested"]
    """`rejected`: outside the 90 % interval; `untested`: the runs cannot tell, and the law is assumed."""
    sentence: str


class SeenPair(_Record):
    """What a tested pair (S, eta) shows by itself, without any law: all that can be said where there is no boundary."""

    sync_interval: int
    learning_rate: float
    runs: int
    collapsed: int
    cumulative_lr: float
    """L up to which all of them were watched."""
    collapse_probability: Estimate
    """Chance of a collapse by that L."""


class Limit(_Record):
    """Largest eta that a rule allows at one interval."""

    sync_interval: int
    learning_rate: float
    collapse_probability: Estimate | None = None
    """P(collapse by the horizon) there; null without a horizon."""


class PairOutlook(_Record):
    sync_interval: int
    learning_rate: float
    collapse_probability: Estimate


class Outlook(_Record):
    """What the fit says about a run that is intended: limits of eta, and P(collapse by T) at the tested pairs."""

    horizon: int | None
    risk: float
    rule: str
    limits: list[Limit]
    collapse_probability: list[PairOutlook] = []


class EtaMax(_Record):
    """Boundary at one interval, averaged over the three models."""

    sync_interval: int
    effective_interval: int | None = None
    """S_eff = 1 + the largest lag that runs with this S had."""
    eta_max: Estimate
    """eta at which half of the runs are prone to collapse."""


class StratumFit(_Record):
    estimator: str
    strata: dict[str, str] = {}
    runs: int
    events: int
    survivors: int
    excluded: int
    boundary: BoundaryFit | None = None
    budget: BudgetFit | None = None
    eta_max: list[EtaMax] = []
    """One row for each swept sync interval; empty when there is no boundary."""
    tests: list[LawTest] = []
    tested: list[SeenPair] = []
    """Tested pairs by themselves; only where there is no boundary."""
    outlook: Outlook | None = None
    """Filled by `calibrate fit`."""
    identifiable: Identifiable
    longest_cumulative_lr: float
    """Longest observed L of any run that entered the fit, up to the onset of those that collapsed: beyond it every
    statement is an extrapolation."""
    naive: BoundaryModel | None = None
    """Power boundary by penalised logistic regression that ignores censoring, shown beside the real fit."""
    findings: list[Finding] = []


class FitResult(_Record):
    """Content of `fit.json`."""

    schema_version: int = 1
    level: float = LEVEL
    strata: list[StratumFit]
