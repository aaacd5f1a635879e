"""What cannot be identified is refused or flagged, with the run that would settle it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from calibrator.laws.boundaries import POWER
from calibrator.laws.evidence import round_up
from calibrator.laws.findings import imprecise
from calibrator.laws.fit import FittedStratum, fit_runs
from calibrator.laws.observations import observe
from calibrator.laws.priors import scales
from calibrator.laws.solve import first_starts, solve
from calibrator.laws.types import Run
from calibrator.verdicts.types import Verdict

Simulate = Callable[..., list[Run]]
PLACE = {"log_C": math.log(0.013), "alpha": 1.0}


@pytest.fixture(scope="module")
def study(simulate: Simulate) -> list[Run]:
    runs: list[Run] = simulate(3, POWER, repeats=2, **PLACE)
    return runs


def _sentence(stratum: FittedStratum, code: str) -> str:
    found = {finding.code: finding.sentence for finding in stratum.summary.findings}
    assert code in found, sorted(found)
    return found[code]


def _refused(runs: list[Run], code: str, *, budget: bool) -> FittedStratum:
    (stratum,) = fit_runs(runs)
    assert "Next" in _sentence(stratum, code)
    assert stratum.posterior is None
    assert stratum.summary.boundary is None
    assert stratum.summary.eta_max == []
    assert not stratum.summary.identifiable.C
    assert not stratum.summary.identifiable.alpha
    assert (stratum.summary.budget is not None) is budget
    return stratum


def test_no_event(study: list[Run]) -> None:
    survivors = [run for run in study if not run.verdict.is_event]
    stratum = _refused(survivors, "no_events", budget=False)
    assert "no bound on C" in _sentence(stratum, "no_events")


def test_no_survivor_leaves_the_budget(study: list[Run]) -> None:
    stratum = _refused([run for run in study if run.verdict.is_event], "no_survivors", budget=True)
    assert stratum.summary.identifiable.B
    assert stratum.summary.budget is not None
    assert stratum.summary.budget.B.low <= 0.03 <= stratum.summary.budget.B.high
    # a quarter of the smallest rate that killed
    assert "S = 64, eta = 5e-05" in _sentence(stratum, "no_survivors")


def test_fewer_than_three_events(study: list[Run]) -> None:
    events = [run for run in study if run.verdict.is_event]
    survivors = [run for run in study if not run.verdict.is_event]
    stratum = _refused(survivors + events[:2], "too_few_events", budget=False)
    assert stratum.summary.events == 2
    _refused(events[:2], "too_few_events", budget=False)


def test_survivors_shorter_than_the_budget(study: list[Run]) -> None:
    cut = [
        run if run.verdict.is_event else run.model_copy(update={"cumulative_lr": 0.005, "updates": 10})
        for run in study
    ]
    stratum = _refused(cut, "runs_shorter_than_budget", budget=True)
    sentence = _sentence(stratum, "runs_shorter_than_budget")
    assert "none was tested" in sentence
    assert any(run.run in sentence for run in cut if not run.verdict.is_event)


def test_one_setting(study: list[Run]) -> None:
    mixed = [
        run.model_copy(update={"sync_interval": 4, "max_lag": 3, "learning_rate": 2e-3}) for run in study
    ]
    _refused(mixed, "one_setting", budget=True)


def test_one_interval_is_flagged(simulate: Simulate) -> None:
    (stratum,) = fit_runs(simulate(3, POWER, intervals=(16,), repeats=4, **PLACE))
    sentence = _sentence(stratum, "one_sync_interval")
    assert "how it depends on S is unknown" in sentence
    assert "Next run: S = 64" in sentence
    assert stratum.posterior is not None
    assert len(stratum.summary.eta_max) == 1
    assert stratum.summary.identifiable.model_dump() == {"C": False, "alpha": False, "B": True}


def test_one_rate_is_flagged(simulate: Simulate) -> None:
    (stratum,) = fit_runs(
        simulate(3, POWER, intervals=(1, 4, 16, 64, 256), rates=(8e-4,), repeats=3, **PLACE)
    )
    assert "rest on the priors" in _sentence(stratum, "one_learning_rate")
    assert stratum.posterior is not None
    assert not stratum.summary.identifiable.C
    assert not stratum.summary.identifiable.alpha
    codes = {finding.code for finding in stratum.summary.findings}
    assert "beta_not_tested" in codes
    assert "alpha_not_one" not in codes


def test_excluded_runs_are_counted_and_named(study: list[Run]) -> None:
    left_out = study[0].model_copy(update={"run": "idle", "verdict": Verdict.UNTRAINED})
    noisy = study[0].model_copy(update={"run": "noisy", "verdict": Verdict.INCONCLUSIVE})
    (stratum,) = fit_runs([*study, left_out, noisy])
    assert stratum.summary.excluded == 2
    assert stratum.summary.runs == len(study) + 2
    assert "idle (untrained), noisy (inconclusive)" in _sentence(stratum, "excluded_runs")
    plain, with_excluded = fit_runs(study)[0].summary, stratum.summary
    assert with_excluded.boundary == plain.boundary
    assert with_excluded.budget == plain.budget


def test_only_excluded_runs(study: list[Run]) -> None:
    idle = [run.model_copy(update={"verdict": Verdict.INCONCLUSIVE}) for run in study[:3]]
    (stratum,) = fit_runs(idle)
    assert _sentence(stratum, "no_runs")
    assert stratum.summary.longest_cumulative_lr == 0.0


def test_degraded_runs_are_shown_both_ways(study: list[Run]) -> None:
    last = max((run for run in study if not run.verdict.is_event), key=lambda run: run.learning_rate)
    degraded = [
        run.model_copy(update={"verdict": Verdict.DEGRADED, "onset_low": 10.0, "onset_high": 20.0})
        if run.run == last.run
        else run
        for run in study
    ]
    (stratum,) = fit_runs(degraded)
    assert last.run in _sentence(stratum, "degraded_sensitivity")
    assert stratum.summary.survivors == sum(not run.verdict.is_event for run in study)
    assert stratum.summary.boundary == fit_runs(study)[0].summary.boundary


def test_few_events_are_said(study: list[Run]) -> None:
    events = [run for run in study if run.verdict.is_event]
    survivors = [run for run in study if not run.verdict.is_event]
    (stratum,) = fit_runs(survivors + events[:4])
    assert "Only 4 runs collapsed" in _sentence(stratum, "few_events")


def test_prior_width_is_always_varied(study: list[Run]) -> None:
    (stratum,) = fit_runs(study)
    assert "twice as wide" in _sentence(stratum, "prior_width_sensitivity")


def test_onsets_that_are_too_coarse_are_said(study: list[Run]) -> None:
    coarse = [
        run.model_copy(update={"cumulative_lr_onset_low": 0.0, "cumulative_lr_onset_high": 10.0})
        if run.verdict.is_event
        else run.model_copy(update={"cumulative_lr": 10.0})
        for run in study
    ]
    (stratum,) = fit_runs(coarse)
    assert not stratum.summary.identifiable.B
    assert "Next run: S = 1" in _sentence(stratum, "budget_not_identified")


def test_runs_that_follow_nothing_are_said(study: list[Run]) -> None:
    """Outcomes dealt out regardless of S and eta, over a range of rates of 1000."""
    dealt = [
        run.model_copy(
            update={
                "learning_rate": 1e-3 * 1000 ** (k / len(study)),
                "verdict": Verdict.COLLAPSED if k % 2 else Verdict.STABLE,
                "cumulative_lr": 0.3,
                "cumulative_lr_onset_low": 0.02,
                "cumulative_lr_onset_high": 0.04,
            }
        )
        for k, run in enumerate(study)
    ]
    assert "only loosely" in _sentence(fit_runs(dealt)[0], "boundary_blurred")


def test_sampling_that_did_not_converge_is_said(study: list[Run]) -> None:
    observations = observe(study)
    at = scales(observations)
    good = solve(observations, at, first_starts(observations, at, None))
    assert imprecise(good) == []
    (finding,) = imprecise(replace(good, effective=dict.fromkeys(good.effective, 3.0)))
    assert finding.code == "imprecise_sampling"
    assert "power" in finding.sentence


def test_too_narrow_a_range_of_staleness_is_said(simulate: Simulate) -> None:
    (stratum,) = fit_runs(simulate(3, POWER, intervals=(16, 20), rates=(4e-4, 1.6e-3), repeats=2, **PLACE))
    assert not stratum.summary.identifiable.alpha
    assert "Next run: S = 80" in _sentence(stratum, "slope_not_identified")


def test_budget_laws_are_rejected_where_they_are_wrong(simulate: Simulate) -> None:
    """Onset at L proportional to S and to sqrt(eta): neither gamma = 0 nor beta = 1 holds."""
    runs = simulate(4, POWER, intervals=(4, 8, 16, 32), repeats=3, **PLACE)

    def stretched(run: Run, power_S: float, power_eta: float) -> Run:
        if not run.verdict.is_event:
            return run.model_copy(update={"cumulative_lr": 100 * run.cumulative_lr})
        factor = (run.sync_interval / 11) ** power_S * (run.learning_rate / 2e-3) ** power_eta
        low, high = run.cumulative_lr_onset_low, run.cumulative_lr_onset_high
        assert low is not None
        assert high is not None
        return run.model_copy(
            update={"cumulative_lr_onset_low": low * factor, "cumulative_lr_onset_high": high * factor}
        )

    by_S = fit_runs([stretched(run, 0.7, 0.0) for run in runs])[0]
    assert "gamma = 0 is rejected" in _sentence(by_S, "gamma_not_zero")
    by_eta = fit_runs([stretched(run, 0.0, 0.7) for run in runs])[0]
    assert "beta = 1 is rejected" in _sentence(by_eta, "beta_not_one")


@pytest.mark.parametrize(
    ("value", "rounded"), [(0.2, 1), (7.2, 8), (96.0, 96), (241.0, 250), (12345.0, 13000)]
)
def test_lengths_are_rounded_up_to_two_digits(value: float, rounded: int) -> None:
    assert round_up(value) == rounded
