"""From the judged trials of a study to its fit, its recommendation and the files that hand them over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from calibrator.advice.cost import CostModel, cost_from_timings
from calibrator.advice.ratios import joined, read_ratios
from calibrator.advice.recommend import recommend
from calibrator.advice.request import AdviceRequest, ObservedGain
from calibrator.advice.suggest import suggest
from calibrator.advice.types import Confirmation, Recommendation, Suggested, ValidFor
from calibrator.errors import NothingToSayError
from calibrator.laws.fit import FittedStratum, fit_runs
from calibrator.laws.posterior import rounded
from calibrator.laws.types import FitResult
from calibrator.study.config import StudyConfig
from calibrator.study.results import TrialResult
from calibrator.study.store import StudyFolder, read_record, resolve, write_json
from calibrator.study.timings import cycles
from calibrator.verdicts.types import Verdict
from trainer.names import ScheduleName

SETTLED = ("rate_below_tested", "extrapolates")
"""Findings that full-length stable runs at the recommended numbers settle."""
EMBEDDED_COST = Path(__file__).parent.parent / "advice" / "embedded_cost.json"
GAIN_STEP = 8
"""Probes of a run that one observed gain averages over: a single probe is too noisy to set a floor."""


@dataclass(frozen=True)
class Conclusion:
    """What a study says. Exactly one of `recommendation` and `refusal` is there."""

    fitted: list[FittedStratum]
    fit: FitResult
    recommendation: Recommendation | None
    refusal: str | None

    def stratum(self, estimator: str) -> FittedStratum | None:
        return next((stratum for stratum in self.fitted if stratum.summary.estimator == estimator), None)


def conclude(
    config: StudyConfig,
    study: StudyFolder,
    results: Sequence[TrialResult],
    confirmation: Confirmation | None = None,
    *,
    schedule: ScheduleName = "lockstep",
    max_lag: int | None = None,
) -> Conclusion:
    """Fit the laws to `results` and recommend by the rule of [advice]. Writes cost.json when there is none yet.

    `schedule` and the largest lag that is allowed, in updates, are those of the intended run.
    """
    fitted = fit_runs([result.run() for result in results])
    fit = FitResult(strata=[stratum.summary for stratum in fitted])
    decisive = next((s for s in fitted if s.summary.estimator == config.trainer.estimator), None)
    if decisive is None:
        return Conclusion(fitted, fit, None, f"no finished run of estimator {config.trainer.estimator!r} yet")
    own = [result for result in results if result.config.trainer.estimator == config.trainer.estimator]
    try:
        request = _request(config, study, own)
        request = request.model_copy(update={"schedule": schedule, "max_lag": max_lag})
        advice = recommend(decisive, request)
    except NothingToSayError as error:
        return Conclusion(fitted, fit, None, _untrained(own) or str(error))
    advice = advice.model_copy(update={"valid_for": _valid_for(config, decisive)})
    return Conclusion(fitted, fit, advice if confirmation is None else confirmed(advice, confirmation), None)


def confirmed(advice: Recommendation, confirmation: Confirmation) -> Recommendation:
    """Attach the runs at the recommended numbers. Where all were stable, what they showed is no extrapolation."""
    update: dict[str, Any] = {"confirmation": confirmation}
    if advice.valid_for is not None and set(confirmation.verdicts) == {Verdict.STABLE}:
        longest = max(advice.valid_for.longest_cumulative_lr, confirmation.cumulative_lr)
        update |= {
            "extrapolation": rounded(advice.extrapolation * advice.valid_for.longest_cumulative_lr / longest),
            "valid_for": advice.valid_for.model_copy(update={"longest_cumulative_lr": longest}),
            "findings": [finding for finding in advice.findings if finding.code not in SETTLED],
        }
    return advice.model_copy(update=update)


def with_suggestion(
    config: StudyConfig, results: Sequence[TrialResult], conclusion: Conclusion
) -> Conclusion:
    """Add what recorded ratios suggest for G and epsilon; apart, since it reads all shards."""
    advice = conclusion.recommendation
    if advice is None:
        return conclusion
    own = [result for result in results if result.config.trainer.estimator == config.trainer.estimator]
    suggested = _suggest(config, own, advice.sync_interval)
    return replace(conclusion, recommendation=advice.model_copy(update={"suggested": suggested}))


def embedded_cost() -> CostModel:
    """Seconds of the embedded default, fixed so that its answer repeats; labelled assumed."""
    return read_record(EMBEDDED_COST, CostModel)


def study_cost(config: StudyConfig, study: StudyFolder, results: Sequence[TrialResult]) -> CostModel | None:
    """Content of cost.json, made on first need and kept, so that the same study gives the same bytes.

    The embedded default ships a fixed one, labelled assumed. None while no trial is finished.
    """
    if study.cost.is_file():
        return read_record(study.cost, CostModel)
    if config.is_embedded_default:
        cost = embedded_cost()
    elif results:
        cost = cost_from_timings(
            (row for result in results for row in cycles(result.folder)),
            prompts_per_update=config.trainer.prompts_per_update,
            group_size=config.trainer.group_size,
            response_length=_response_length(results),
            placement=config.resources.placement,
        )
    else:
        return None
    write_json(study.cost, cost.model_dump(mode="json"))
    return cost


def observed_gains(results: Sequence[TrialResult]) -> tuple[ObservedGain, ...]:
    """How far stable runs had come at points of their curves, probes averaged in blocks."""
    gains = []
    for result in results:
        curve = result.curve
        if result.verdict.verdict is not Verdict.STABLE or curve.probes is None:
            continue
        start = float(np.mean(curve.rewards.value[: max(1, result.config.sync_interval)]))
        for begin in range(0, len(curve.probes.value) - GAIN_STEP + 1, GAIN_STEP):
            block = slice(begin, begin + GAIN_STEP)
            reached = curve.cumulative_lr(float(curve.probes.version[block].mean()))
            gains.append(
                ObservedGain(cumulative_lr=reached, gain=float(curve.probes.value[block].mean()) - start)
            )
    return tuple(gains)


def _untrained(own: Sequence[TrialResult]) -> str | None:
    """Why no run trained, when none did: most often the base policy is never rewarded."""
    if any(result.verdict.verdict is not Verdict.UNTRAINED for result in own):
        return None
    starts = [result.curve.probes.value[0] for result in own if result.curve.probes is not None]
    base = f"{np.mean(starts):.3g}" if starts else "unknown"
    return (
        f"none of {len(own)} runs trained; the base policy scores {base} on held-out prompts. A policy that is never "
        "or always rewarded has nothing to learn from: take an easier task or a model that solves some of it, look at "
        "task.reward_floor, trainer.response_limit and whether the tokenizer knows the task's characters"
    )


def _request(config: StudyConfig, study: StudyFolder, own: Sequence[TrialResult]) -> AdviceRequest:
    cost = study_cost(config, study, own)
    if cost is None:
        raise NothingToSayError("no trial is finished, so nothing is known about the cost of an update")
    return AdviceRequest(
        horizon=config.advice.horizon,
        risk=config.advice.risk,
        rule=config.advice.rule,
        objective=config.advice.objective,
        sync_intervals=config.sweep.sync_intervals,
        group_size=config.trainer.group_size,
        epsilon=config.trainer.epsilon,
        warmup=config.trainer.warmup,
        cost=cost,
        gains=observed_gains(own),
    )


def _suggest(config: StudyConfig, own: Sequence[TrialResult], sync_interval: int) -> Suggested | None:
    """Resample what stable runs at this interval recorded; None when no such run recorded ratios."""
    near = [r for r in own if r.config.sync_interval == sync_interval and r.verdict.verdict is Verdict.STABLE]
    records = [
        read_ratios(result.folder) for result in near if list(result.folder.glob("ratios-*.safetensors"))
    ]
    if not records or config.trainer.estimator not in ("gmc", "tic", "tic_zero"):
        return None
    return suggest(
        joined(records),
        estimator=config.trainer.estimator,
        group_size=config.trainer.group_size,
        epsilon=config.trainer.epsilon,
        batch=config.trainer.group_size * config.trainer.prompts_per_update,
    )


def _valid_for(config: StudyConfig, stratum: FittedStratum) -> ValidFor:
    digests = resolve(config)["digests"]
    return ValidFor(
        **digests,
        longest_cumulative_lr=stratum.summary.longest_cumulative_lr,
        sync_intervals=list(config.sweep.sync_intervals),
    )


def _response_length(results: Sequence[TrialResult]) -> float:
    lengths = [float(np.nanmean(result.curve.witnesses["response_length"])) for result in results]
    return float(f"{np.median(lengths):.4g}")
