"""From a study folder and its conclusion to what the reports show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from calibrator.advice.cost import CostModel
from calibrator.advice.prediction import ConfirmationRecord
from calibrator.advice.types import Recommendation
from calibrator.errors import CorruptStudyError
from calibrator.handoff.conclude import Conclusion
from calibrator.handoff.write import read_confirmation
from calibrator.runlogs.curve import Curve
from calibrator.study.config import StudyConfig
from calibrator.study.provenance import git_commit, hardware, versions
from calibrator.study.results import TrialResult
from calibrator.study.store import StudyFolder, read_record, resolve
from calibrator.study.timings import seconds_spent
from calibrator.sweep.questions import CONFIRM
from reports.recorded import recorded_in
from reports.view import Role, RunView, StudyView, boundary_band

REPORT_FILES = ("report.html", "report.md", "figures/", "fit.json", "manifest.json", "cost.json", "trials/")
SETTINGS_FILES = ("recommendation.json", "trainer.toml")


def study_view(
    config: StudyConfig,
    study: StudyFolder,
    results: Sequence[TrialResult],
    conclusion: Conclusion,
    recorded: dict[str, Any] | None = None,
) -> StudyView:
    """Everything that the four report formats show; `recorded` is the manifest, made anew without."""
    in_fit = {run.run for stratum in conclusion.fitted for run in stratum.runs}
    return StudyView(
        title=f"Calibration of {config.task.name} with {config.trainer.estimator}",
        folder=str(study.root),
        runs=tuple(_run_view(result, in_fit=result.name in in_fit) for result in results),
        fit=conclusion.fit,
        bands=tuple(
            boundary_band(stratum.summary, stratum.posterior)
            for stratum in conclusion.fitted
            if stratum.posterior is not None
        ),
        recommendation=conclusion.recommendation,
        refusal=conclusion.refusal,
        confirmed=confirmed(study, conclusion.recommendation),
        cost=read_record(study.cost, CostModel) if study.cost.is_file() else None,
        manifest=recorded or manifest(config, results),
        setting=config.setting(),
        files=(*REPORT_FILES, *(SETTINGS_FILES if conclusion.recommendation else ())),
    )


def confirmed(study: StudyFolder, advice: Recommendation | None) -> ConfirmationRecord | None:
    """confirmation.json, where it is about the numbers that are recommended now."""
    record = None if advice is None else read_confirmation(study)
    if advice is None or record is None:
        return None
    now = (advice.sync_interval, advice.learning_rate, advice.horizon)
    same = any(
        now == (s.sync_interval, s.learning_rate, s.horizon)
        for s in record.settings
        if s.role == "recommended"
    )
    return record if same and record.estimator == advice.estimator else None


def manifest(config: StudyConfig, results: Sequence[TrialResult]) -> dict[str, Any]:
    """Content of manifest.json: with what, where and from what the study was made."""
    return {
        "versions": versions(),
        "hardware": hardware(),
        "commit": git_commit(),
        "digests": resolve(config)["digests"],
        **counts(results),
    }


def counts(results: Sequence[TrialResult]) -> dict[str, Any]:
    """How much was run, as manifest.json has it."""
    return {
        "seeds": sorted({result.config.seed for result in results}),
        "trials": len(results),
        "updates": sum(result.verdict.updates for result in results),
        "trial_seconds": round(sum(seconds_spent(result.folder) for result in results), 1),
    }


def _run_view(result: TrialResult, *, in_fit: bool) -> RunView:
    """A confirmation that entered the fit, of an earlier answer or since it collapsed, is a run like any other."""
    role: Role = "sweep"
    if result.stage.startswith(CONFIRM) and not in_fit:
        role = "check" if result.is_check else "confirmation"
    curve = _curve(result)
    recorded = recorded_in(result.folder, curve, result.summary)
    return RunView(result.run(), result.verdict, result.number, role, curve, recorded)


def _curve(result: TrialResult) -> Curve | None:
    """A log that cannot be read back leaves its curve out of the report, not the run."""
    try:
        return result.curve
    except CorruptStudyError:
        return None
