"""Builders of synthetic `StudyView`s; numbers follow the embedded study, but nothing was trained for them."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from calibrator.advice.cost import CostModel
from calibrator.advice.types import (
    Confirmation,
    FrontierRow,
    Origin,
    Recommendation,
    Suggested,
    SuggestionRow,
    ValidFor,
)
from calibrator.laws.types import (
    BoundaryFit,
    BoundaryModel,
    BudgetFit,
    Estimate,
    EtaMax,
    Finding,
    FitResult,
    Identifiable,
    Run,
    StratumFit,
)
from calibrator.runlogs.curve import Curve, Series
from calibrator.verdicts.types import Evidence, RunVerdict, Verdict
from reports.recorded import Bias, Recorded
from reports.view import Band, Floats, Role, RunView, StudyView, band_from_draws, sync_grid
from trainer.summary import RunSummary

STRATA = {"model": "embedded", "task": "running-sum", "G": "16", "P": "8", "epsilon": "0.2"}
BUDGET = {"gmc": 0.11, "none": 0.026}
SWEPT = (1, 4, 16, 64)

GMC = [
    (1, 2e-3, "stable"), (1, 4.8e-3, "stable"), (1, 6.4e-3, "collapsed"), (4, 1.6e-3, "stable"),
    (4, 3.2e-3, "stable"), (4, 6.4e-3, "collapsed"), (16, 8e-4, "stable"), (16, 2.4e-3, "stable"),
    (16, 3.2e-3, "collapsed"), (16, 6.4e-3, "diverged"), (64, 8e-4, "stable"), (64, 1.6e-3, "degraded"),
    (64, 2.4e-3, "collapsed"),
]  # fmt: skip
NONE = [
    (1, 3.2e-3, "stable"), (4, 1.6e-3, "stable"), (4, 3.2e-3, "collapsed"), (16, 4e-4, "stable"),
    (16, 8e-4, "inconclusive"), (16, 1.6e-3, "collapsed"), (64, 1e-4, "untrained"), (64, 4e-4, "collapsed"),
    (64, 8e-4, "collapsed"), (16, 4e-4, "interrupted"),
]  # fmt: skip

DECIDED = Finding(
    code="boundary_decided",
    sentence="Posterior weights of the boundaries: power 0.97, ceiling 0.03, constant 0.00.",
)
UNDECIDED = Finding(
    code="boundary_undecided",
    sentence="The runs do not tell the boundaries apart (posterior weights: power 0.20, ceiling 0.80, "
    "constant 0.00); advice averages.",
)


def estimate(value: float, spread: float = 0.3) -> Estimate:
    return Estimate(estimate=value, low=value * math.exp(-spread), high=value * math.exp(spread))


def curve(run: Run) -> Curve:
    """Reward that rises from 0.4 and, in a run that dies, falls at L = B."""
    sync, eta, updates, verdict = run.sync_interval, run.learning_rate, run.updates, run.verdict
    budget = BUDGET[run.estimator]
    rng = np.random.default_rng(run.seed)
    version = np.arange(0, updates, sync, dtype=float)
    total = eta * version
    reward = 0.4 + 0.57 * (1 - np.exp(-total / 0.02))
    if verdict.is_event:
        reward *= 1 / (1 + np.exp((total - budget) / (0.03 * budget)))
    if verdict is Verdict.DEGRADED:
        reward -= 0.25 * total / total.max()
    if verdict is Verdict.UNTRAINED:
        reward = np.full_like(total, 0.4)
    value = np.clip(reward + rng.normal(0, 0.02, version.size), 0, 1)
    se = np.full_like(version, 0.02)
    every = np.arange(0, updates, 8, dtype=float)
    probes = Series("probe", every, np.interp(every, version, value), np.full_like(every, 0.03), every)
    rewards = Series("reward", version, value, se, version + sync)
    return Curve(updates, np.full(updates, eta), rewards, probes, max_lag=sync - 1)


def run_view(trial: int, estimator: str, row: tuple[int, float, str], role: Role = "sweep") -> RunView:
    sync, eta, word = row
    verdict = Verdict(word)
    updates = max(64, min(1500, round(1.5 * BUDGET[estimator] / eta)))
    if verdict is Verdict.INTERRUPTED:
        updates //= 2
    high = math.ceil(BUDGET[estimator] / eta / sync) * sync
    low = max(0, high - sync)
    onset = (float(low), float(high)) if verdict.is_event else None
    at_onset = (low * eta, high * eta) if verdict.is_event else None
    run = Run(
        run=f"{estimator}-S{sync}-eta{eta:g}-seed{trial}",
        estimator=estimator,
        strata=STRATA,
        sync_interval=sync,
        max_lag=sync - 1,
        learning_rate=eta,
        seed=trial,
        updates=updates,
        verdict=verdict,
        cumulative_lr=updates * eta,
        onset_low=onset[0] if onset else None,
        onset_high=onset[1] if onset else None,
        cumulative_lr_onset_low=at_onset[0] if at_onset else None,
        cumulative_lr_onset_high=at_onset[1] if at_onset else None,
    )
    judged = RunVerdict(
        verdict=verdict,
        onset_updates=onset,
        cumulative_lr_at_onset=at_onset,
        updates=updates,
        cumulative_lr_total=updates * eta,
        evidence=[evidence(verdict, high)],
        warnings=["The process was killed before the run ended."] if verdict is Verdict.INTERRUPTED else [],
    )
    return RunView(run, judged, trial, role, curve(run), recorded(run))


def recorded(run: Run) -> Recorded:
    """Beside the curve: how the run ended, its seconds, and a staleness bias that grows with lag x eta."""
    summary = RunSummary(
        updates=run.updates,
        ended="finished",
        held_out_before=0.4,
        held_out_after=None,
        lag_bound=run.max_lag,
        lag_reached=run.max_lag,
        paced=0,
        discarded_groups=0,
        discarded_length=None,
        discarded_pass_rate=None,
    )
    seconds = {"generate": 0.18 * run.updates, "learn": 0.06 * run.updates, "synchronize": 0.3}
    return Recorded(summary, seconds, bias(run) if run.estimator == "none" else None)


def bias(run: Run) -> Bias:
    update = np.arange(0, run.updates, 3, dtype=float)
    lag = update % run.sync_interval
    noise = np.random.default_rng(run.seed).normal(1, 0.5, update.size)
    return Bias(update, lag, (50 * lag * run.learning_rate) ** 2 * noise, np.full_like(update, 0.04))


def evidence(verdict: Verdict, at: float) -> Evidence:
    sentences = {
        Verdict.STABLE: "Reward rose from 0.40 to 0.97 and never fell for good.",
        Verdict.COLLAPSED: "Reward fell from 0.95 to 0.02, 31 standard errors, and stayed there.",
        Verdict.DIVERGED: "The gradient norm was not finite.",
        Verdict.DEGRADED: "Reward slid from 0.91 to 0.71, 7 standard errors, without a cliff.",
        Verdict.UNTRAINED: "Reward stayed within noise of its first value.",
        Verdict.INCONCLUSIVE: "A deep dip at the end of the run could not be told from a collapse.",
        Verdict.INTERRUPTED: "Reward had not fallen when the log ended.",
    }
    return Evidence(code=verdict.value, sentence=sentences[verdict], update=at if verdict.is_event else None)


def boundary(
    chosen: str, C: float, alpha: float, eta_0: float, weights: tuple[float, float, float]
) -> BoundaryFit:
    power, ceiling, constant = weights
    models = {
        "power": BoundaryModel(
            weight=power,
            log_evidence=-9.0,
            sigma=estimate(0.25, 0.5),
            C=estimate(C),
            alpha=estimate(alpha, 0.12),
        ),
        "ceiling": BoundaryModel(
            weight=ceiling,
            log_evidence=-7.0,
            sigma=estimate(0.2, 0.5),
            C=estimate(C, 0.4),
            eta_0=estimate(eta_0, 0.15),
        ),
        "constant": BoundaryModel(
            weight=constant, log_evidence=-25.0, sigma=estimate(0.9), eta_0=estimate(eta_0 / 2)
        ),
    }
    return BoundaryFit.model_validate({"chosen": chosen, "models": models})


def eta_max(estimator: str, sync: float) -> float:
    return 1 / (1 / 4.7e-3 + (sync - 1) / 0.17) if estimator == "gmc" else 0.013 / sync**1.04


def band(stratum: StratumFit) -> Band:
    rng = np.random.default_rng(3)
    grid = sync_grid(list(SWEPT))
    centre: Floats = np.log([[eta_max(stratum.estimator, s)] for s in grid])
    tilt = np.log(grid / 8)[:, None] * rng.normal(0, 0.05, 400)
    return band_from_draws(stratum, grid, centre + rng.normal(0, 0.12, 400) + tilt)


def stratum(estimator: str, runs: list[RunView]) -> StratumFit:
    verdicts = [r.run.verdict for r in runs if r.run.estimator == estimator]
    gmc = estimator == "gmc"
    return StratumFit(
        estimator=estimator,
        strata=STRATA,
        runs=len(verdicts),
        events=sum(v.is_event for v in verdicts),
        survivors=sum(v.is_survivor for v in verdicts),
        excluded=sum(v in (Verdict.INCONCLUSIVE, Verdict.UNTRAINED) for v in verdicts),
        boundary=boundary("ceiling", 0.17, 0.35, 4.7e-3, (0.2, 0.8, 0.0))
        if gmc
        else boundary("power", 0.013, 1.04, 4e-3, (0.97, 0.03, 0.0)),
        budget=BudgetFit(
            B=estimate(BUDGET[estimator], 0.2),
            beta=Estimate(estimate=1.04, low=0.88, high=1.21),
            gamma=Estimate(estimate=-0.03, low=-0.16, high=0.09),
            sigma=estimate(0.18, 0.5),
            B_without_ceiling_deaths=estimate(0.12, 0.3) if gmc else None,
        ),
        eta_max=[EtaMax(sync_interval=s, eta_max=estimate(eta_max(estimator, s), 0.22)) for s in SWEPT],
        identifiable=Identifiable(C=True, alpha=True, B=True),
        longest_cumulative_lr=0.165 if gmc else 0.04,
        naive=BoundaryModel(
            weight=1.0,
            log_evidence=0.0,
            sigma=estimate(0.3),
            C=estimate(0.02 if not gmc else 7e-3),
            alpha=estimate(0.5),
        ),
        findings=[UNDECIDED if gmc else DECIDED],
    )


def frontier() -> list[FrontierRow]:
    rows = [(1, 2.9e-3, 0.52), (4, 2.6e-3, 0.31), (16, 1.9e-3, 0.26), (64, 9.4e-4, 0.245)]
    return [
        FrontierRow(
            sync_interval=s,
            max_learning_rate=eta * 1.01,
            learning_rate=eta,
            eta_max=estimate(eta_max("gmc", s), 0.2),
            collapse_probability=Estimate(estimate=0.021, low=0.004, high=0.048),
            seconds_per_update=cost,
            progress_per_second=eta / cost,
            useful=s != 64,
        )
        for s, eta, cost in rows
    ]


def suggested() -> Suggested:
    table = [
        SuggestionRow(
            group_size=g,
            epsilon=e,
            cap_activation=0.4 / (g * e) ** 0.5,
            lost_mass=0.05 / (g * e),
            second_moment=1 + e,
            ess=0.9 - 0.3 * e,
            signal=min(1.0, 0.5 + 0.1 * math.log2(g)),
            extrapolated=g > 16,
        )
        for g in (8, 16, 32)
        for e in (0.1, 0.2, 0.4)
    ]
    reason = "The cap acts on 13 % of the groups instead of 22 %, at the same variance"
    return Suggested(group_size=32, epsilon=0.2, reason=reason, table=table)


def recommendation() -> Recommendation:
    origin: dict[str, Origin] = {
        "sync_interval": "derived", "learning_rate": "derived", "group_size": "assumed", "epsilon": "assumed"
    }  # fmt: skip
    return Recommendation(
        sync_interval=4,
        max_lag=3,
        schedule="lockstep",
        learning_rate=2.6e-3,
        group_size=16,
        epsilon=0.2,
        estimator="gmc",
        horizon=20_000,
        risk=0.05,
        rule="stable",
        objective="time",
        collapse_probability=Estimate(estimate=0.021, low=0.004, high=0.048),
        extrapolation=2.6e-3 * 20_000 / 0.165,
        suggested=suggested(),
        origin=origin,
        frontier=frontier(),
        floor_learning_rate=1.1e-3,
        confirmation=Confirmation(
            sync_interval=4,
            trials=[23, 24],
            verdicts=["stable", "stable"],
            learning_rate=2.6e-3,
            updates=400,
            cumulative_lr=1.03,
            held_out_before=0.402,
            held_out_after=[0.958, 0.961],
        ),
        findings=[
            Finding(
                code="extrapolates",
                sentence="At the horizon L is 320 times the longest L observed: whether runs collapse beyond "
                "that was never seen.",
            ),
            Finding(code="floor_assumed", sentence="Rates below 0.0011 count as useless."),
        ],
        valid_for=ValidFor(
            model="8d1f22a0c4b1e97a",
            task="1f6c0d7730aa52be",
            setting="77ab90ce1d4f0132",
            code="0.1.0+cb65aeb",
            longest_cumulative_lr=0.165,
            sync_intervals=list(SWEPT),
        ),
    )


MANIFEST: dict[str, object] = {
    "versions": {"grpo-calibrator": "0.1.0", "python": "3.11.7", "torch": "2.13.0", "transformers": "5.16.1"},
    "hardware": {"cpu": "AMD EPYC 9554", "cores": 16, "gpu": None},
    "commit": "cb65aeb",
    "seeds": [0, 1, 2],
    "digests": {"model": "8d1f22a0c4b1e97a", "task": "1f6c0d7730aa52be", "setting": "77ab90ce1d4f0132"},
    "spent": {"updates": 9216, "seconds": 2871.4},
}
COST = CostModel(
    generate=0.181,
    score=0.0021,
    learn=0.058,
    synchronize=0.277,
    origin="measured",
    prompts_per_update=8,
    group_size=16,
    response_length=9.0,
)
FILES = (
    "report.html", "report.md", "recommendation.json", "fit.json", "trainer.toml", "figures/phase.svg",
    "figures/budget.svg", "figures/rewards.svg",
)  # fmt: skip


def study() -> StudyView:
    """A finished study."""
    runs = [run_view(i, "gmc", row) for i, row in enumerate(GMC)]
    runs += [run_view(len(GMC) + i, "none", row) for i, row in enumerate(NONE)]
    runs += [run_view(t, "gmc", (4, 2.6e-3, "stable"), "confirmation") for t in (23, 24)]
    strata = [stratum("gmc", runs), stratum("none", runs)]
    return StudyView(
        title="running-sum on the embedded policy",
        folder="runs/running-sum",
        runs=tuple(runs),
        fit=FitResult(strata=strata),
        bands=tuple(band(s) for s in strata),
        recommendation=recommendation(),
        cost=COST,
        manifest=MANIFEST,
        files=FILES,
    )


def refused_study() -> StudyView:
    """Nothing died, so nothing bounds C."""
    runs = tuple(run_view(i, "gmc", (s, 1e-4, "stable")) for i, s in enumerate(SWEPT))
    finding = Finding(
        code="no_events", sentence="No run collapsed: the boundary lies above every rate that was tried."
    )
    fit = StratumFit(
        estimator="gmc",
        strata=STRATA,
        runs=4,
        events=0,
        survivors=4,
        excluded=0,
        identifiable=Identifiable(C=False, alpha=False, B=False),
        longest_cumulative_lr=0.15,
        findings=[finding],
    )
    return StudyView(
        title="too cautious",
        folder="runs/too cautious",
        runs=runs,
        fit=FitResult(strata=[fit]),
        refusal="No run collapsed at one learning rate; run next: S = 16 at eta = 4e-4 and 1.6e-3.",
        findings=(finding,),
    )


SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(2)></style></script>"
HOSTILE = f"{SCRIPT}[red]x[/red] \x1b[31mred\x07 | `a` *b* _c_ $x^2$ &amp; \u202eright\nnext {'w' * 300}"


def hostile_study() -> StudyView:
    """Every text that comes from users is an attack."""
    view = study()
    strata = {**STRATA, HOSTILE: HOSTILE}

    def spoil(row: RunView) -> RunView:
        estimator = HOSTILE if row.run.estimator == "none" else row.run.estimator
        run = row.run.model_copy(update={"run": HOSTILE, "estimator": estimator, "strata": strata})
        said = [Evidence(code=HOSTILE, sentence=HOSTILE)]
        return dataclasses.replace(
            row, run=run, verdict=row.verdict.model_copy(update={"evidence": said, "warnings": [HOSTILE]})
        )

    finding = Finding(code=HOSTILE, sentence=HOSTILE)
    fits = [
        s.model_copy(
            update={
                "estimator": HOSTILE if s.estimator == "none" else "gmc",
                "strata": strata,
                "findings": [finding],
            }
        )
        for s in view.fit.strata
    ]
    assert view.recommendation is not None
    return dataclasses.replace(
        view,
        title=HOSTILE,
        folder=HOSTILE,
        runs=tuple(spoil(r) for r in view.runs),
        fit=FitResult(strata=fits),
        bands=tuple(
            dataclasses.replace(b, estimator=f.estimator, strata=strata)
            for b, f in zip(view.bands, fits, strict=True)
        ),
        recommendation=view.recommendation.model_copy(update={"findings": [finding]}),
        manifest={HOSTILE: HOSTILE, "nested": {HOSTILE: [HOSTILE]}},
        files=(HOSTILE,),
    )


def large_study(runs: int) -> StudyView:
    """Many runs, for size and time."""
    view = study()
    return dataclasses.replace(view, runs=tuple(run_view(i, "gmc", GMC[i % len(GMC)]) for i in range(runs)))


def unknown_rates() -> StudyView:
    """Imported logs that hold no learning rate, and one that cannot be read at all."""
    view = study()

    def blind(row: RunView) -> RunView:
        run = row.run.model_copy(update={"learning_rate": math.nan, "cumulative_lr": math.nan})
        verdict = row.verdict.model_copy(update={"cumulative_lr_at_onset": None, "cumulative_lr_total": None})
        return dataclasses.replace(row, run=run, verdict=verdict, curve=row.curve if row.trial else None)

    return dataclasses.replace(view, runs=tuple(blind(r) for r in view.runs), cost=None)
