"""From the judged trials of a study to its fit, its recommendation and the files that hand them over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from calibrator.advice.cost import CostModel, TimedCycles, cost_from_timings
from calibrator.advice.horizon import Horizon, updates_of
from calibrator.advice.progress import progress_finding
from calibrator.advice.ratios import LARGE_GROUPS, joined, read_ratios
from calibrator.advice.recommend import recommend
from calibrator.advice.request import AdviceRequest
from calibrator.advice.suggest import CAPPED, suggest
from calibrator.advice.types import Confirmation, Recommendation, Suggested, ValidFor
from calibrator.errors import NothingToSayError, StudyConfigError
from calibrator.handoff import cache
from calibrator.handoff.logs import (
    Logs,
    measured,
    observed_gains,
    response_length,
    reward_curves,
    summaries,
)
from calibrator.laws.fitted import FittedStratum
from calibrator.laws.posterior import rounded
from calibrator.laws.types import Finding, FitResult, Run
from calibrator.study.config import StudyConfig
from calibrator.study.results import CHECKED_RUNS, CONFIG, TrialResult
from calibrator.study.store import PACE, StudyFolder, read_record, resolve, write_json
from calibrator.study.timings import cycles
from calibrator.verdicts.types import Verdict
from trainer.config import RunConfig
from trainer.names import ScheduleName

SETTLED = ("rate_below_tested", "extrapolates")
"""Findings that full-length stable runs at the recommended numbers settle."""
EMBEDDED_COST = Path(__file__).parent.parent / "advice" / "embedded_cost.json"


@dataclass(frozen=True)
class Intent:
    """The run that is intended, beyond what [advice] says of it."""

    schedule: ScheduleName = "lockstep"
    max_lag: int | None = None
    """Largest lag that it may have, in updates."""
    horizon: Horizon | None = None
    """T in another unit than updates; [advice] then says nothing about it."""
    price_per_hour: float | None = None


@dataclass(frozen=True)
class Conclusion:
    """What a study says. Exactly one of `recommendation` and `refusal` is there."""

    fitted: list[FittedStratum]
    fit: FitResult
    recommendation: Recommendation | None
    refusal: str | None
    suggestion_key: str = ""
    """Digest of what the suggestion was made from."""

    def stratum(self, estimator: str) -> FittedStratum | None:
        return next((stratum for stratum in self.fitted if stratum.summary.estimator == estimator), None)


def conclude(
    config: StudyConfig,
    study: StudyFolder,
    results: Sequence[TrialResult],
    intent: Intent = Intent(),
) -> Conclusion:
    """Fit the laws to `results` and recommend by the rule of [advice]. Writes cost.json when there is none yet.

    What the study's cache holds of these very runs is taken from there.
    """
    logs = summaries(results, cache.read_logs(study))
    fitted = _fitted(study, [result.run(logs[result.number].max_lag) for result in results])
    fit = FitResult(strata=[stratum.summary for stratum in fitted])
    decisive = next((s for s in fitted if s.summary.estimator == config.trainer.estimator), None)
    if decisive is None:
        return Conclusion(fitted, fit, None, f"no finished run of estimator {config.trainer.estimator!r} yet")
    own = _own(config, results)
    try:
        advice = recommend(decisive, _request(config, study, own, logs, intent))
    except NothingToSayError as error:
        return Conclusion(fitted, fit, None, _untrained(own) or str(error))
    said = [*advice.findings, *_about_checks(own)]
    advice = advice.model_copy(update={"valid_for": _valid_for(config, decisive), "findings": said})
    return Conclusion(fitted, fit, advice, None)


def remember(
    config: StudyConfig, study: StudyFolder, results: Sequence[TrialResult], conclusion: Conclusion
) -> None:
    """Keep in the study's cache what makes this conclusion quick, and that of another question.

    For another horizon or risk the runs that confirmed this one are runs like any other, so all runs are fitted, too.
    """
    logs = summaries(results, cache.read_logs(study))
    cache.keep_logs(study, logs)
    fits = [
        conclusion.fitted,
        _fitted(study, [result.run(logs[result.number].max_lag) for result in results]),
    ]
    kept = []
    for fitted in fits:
        runs = _in_order([run for stratum in fitted for run in stratum.runs])
        cache.keep_fit(
            study, runs, [(stratum.summary, stratum.posterior, stratum.runs) for stratum in fitted]
        )
        kept.append(cache.fit_key(runs))
    cache.forget_other_fits(study, kept)
    for each in (conclusion, with_suggestion(config, study, results, conclusion)):
        if each.recommendation is not None and each.recommendation.suggested is not None:
            cache.keep_suggestion(study, each.suggestion_key, each.recommendation.suggested)


def _fitted(study: StudyFolder, runs: Sequence[Run]) -> list[FittedStratum]:
    """The fit of these runs; the laws are loaded only where it must be made."""
    if (strata := cache.read_fit(study, _in_order(runs))) is not None:
        return [FittedStratum(*stratum) for stratum in strata]
    from calibrator.laws.fit import fit_runs

    return fit_runs(runs)


def _in_order(runs: Sequence[Run]) -> list[Run]:
    return sorted(runs, key=lambda run: run.model_dump_json())


def attach(conclusion: Conclusion, confirmation: Confirmation) -> Conclusion:
    """Add the runs at the recommended numbers, where anything is recommended still."""
    advice = conclusion.recommendation
    return conclusion if advice is None else replace(conclusion, recommendation=_with(advice, confirmation))


def _with(advice: Recommendation, confirmation: Confirmation) -> Recommendation:
    """Where all of these runs were stable, what they showed is no extrapolation."""
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
    config: StudyConfig, study: StudyFolder, results: Sequence[TrialResult], conclusion: Conclusion
) -> Conclusion:
    """Add what recorded ratios suggest for G and epsilon; apart, since it reads all shards.

    The same question about the same shards is answered from the study's cache.
    """
    advice = conclusion.recommendation
    if advice is None:
        return conclusion
    suggested, key = _suggest(config, _own(config, results), advice.sync_interval, study)
    advice = advice.model_copy(update={"suggested": suggested})
    return replace(conclusion, recommendation=advice, suggestion_key=key)


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
            response_length=response_length(summaries(results, cache.read_logs(study))),
            placement=config.resources.placement,
            others=_paced(study),
        )
    else:
        return None
    write_json(study.cost, cost.model_dump(mode="json"))
    return cost


def _about_checks(own: Sequence[TrialResult]) -> list[Finding]:
    """That runs of `calibrate confirm` are in the fit: they were placed to check an answer, not to narrow it."""
    made = [result for result in own if result.is_check]
    if not made:
        return []
    died = sum(result.verdict.verdict.is_event for result in made)
    sentence = (
        f"{len(made)} of the {len(own)} runs behind this answer were made by `calibrate confirm` to check an earlier "
        f"one; {died} of them collapsed."
    )
    return [Finding(code=CHECKED_RUNS, sentence=sentence)]


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


def _request(
    config: StudyConfig, study: StudyFolder, own: Sequence[TrialResult], logs: Logs, intent: Intent
) -> AdviceRequest:
    cost = study_cost(config, study, own)
    if cost is None:
        raise NothingToSayError("no trial is finished, so nothing is known about the cost of an update")
    asked = intent.horizon
    found = [progress_finding(reward_curves(own, logs))]
    horizon = config.advice.horizon
    if asked is not None and asked.unit in ("tokens", "epochs"):
        known = measured(config, own, logs)
        horizon = updates_of(asked, known)
        if horizon <= config.trainer.warmup:
            raise StudyConfigError(
                f"--horizon {asked.text}: {horizon} updates are not longer than the "
                f"trainer.warmup = {config.trainer.warmup} of the study"
            )
        found.append(_converted(asked, horizon, known.tokens_per_update if asked.unit == "tokens" else None))
    return AdviceRequest(
        horizon=horizon,
        hours=asked.amount if asked is not None and asked.unit == "hours" else None,
        horizon_asked=None if asked is None else asked.text,
        price_per_hour=intent.price_per_hour,
        risk=config.advice.risk,
        rule=config.advice.rule,
        objective=config.advice.objective,
        sync_intervals=config.sweep.sync_intervals,
        group_size=config.trainer.group_size,
        epsilon=config.trainer.epsilon,
        warmup=config.trainer.warmup,
        schedule=intent.schedule,
        max_lag=intent.max_lag,
        cost=cost,
        gains=observed_gains(own, logs),
        measured=tuple(found),
    )


def _converted(asked: Horizon, updates: int, tokens: float | None) -> Finding:
    how = (
        "at the P of the study and the prompts of its data set"
        if tokens is None
        else f"at {tokens:,.0f} response tokens an update, the median of its stable runs"
    )
    return Finding(code="horizon_converted", sentence=f"{asked.text} are T = {updates:,} updates, {how}.")


def _paced(study: StudyFolder) -> list[TimedCycles]:
    """Cycles of the runs that timed other batches, where the study made any."""
    found = []
    for folder in sorted((study.root / PACE).glob("*")):
        config = read_record(folder / CONFIG, RunConfig, remedy=f"delete {folder}")
        batch = config.trainer.prompts_per_update * config.trainer.group_size
        found.append(TimedCycles(batch, cycles(folder)[1:]))
    return found


def _suggest(
    config: StudyConfig, own: Sequence[TrialResult], sync_interval: int, study: StudyFolder
) -> tuple[Suggested | None, str]:
    """Resample what stable runs at this interval recorded, and the key of the answer in the cache.

    None when no such run recorded ratios.
    """
    folders, setting = _recorded(config, own, sync_interval)
    if not folders or config.trainer.estimator not in CAPPED:
        return None, ""
    key = cache.suggestion_key(folders, setting)
    return cache.read_suggestion(study, key) or _resampled(folders, setting), key


def _resampled(folders: Sequence[Path], setting: dict[str, Any]) -> Suggested:
    """From the ratios that runs recorded, and their probes of larger groups where they made any."""
    probes = [read_ratios(folder, LARGE_GROUPS) for folder in folders if list(folder.glob(LARGE_GROUPS))]
    recorded = joined([read_ratios(folder) for folder in folders])
    return suggest(recorded, probe=joined(probes) if probes else None, **setting)


def _recorded(
    config: StudyConfig, own: Sequence[TrialResult], sync_interval: int
) -> tuple[list[Path], dict[str, Any]]:
    """Folders of the stable runs at this interval that recorded ratios, and what `suggest` is asked."""
    near = [r for r in own if r.config.sync_interval == sync_interval and r.verdict.verdict is Verdict.STABLE]
    folders = [result.folder for result in near if list(result.folder.glob("ratios-*.safetensors"))]
    trainer = config.trainer
    return folders, {
        "estimator": trainer.estimator,
        "group_size": trainer.group_size,
        "epsilon": trainer.epsilon,
        "batch": trainer.group_size * trainer.prompts_per_update,
    }


def _own(config: StudyConfig, results: Sequence[TrialResult]) -> list[TrialResult]:
    """Trials of the estimator that decides."""
    return [result for result in results if result.config.trainer.estimator == config.trainer.estimator]


def _valid_for(config: StudyConfig, stratum: FittedStratum) -> ValidFor:
    digests = resolve(config)["digests"]
    return ValidFor(
        **digests,
        longest_cumulative_lr=stratum.summary.longest_cumulative_lr,
        sync_intervals=list(config.sweep.sync_intervals),
    )
