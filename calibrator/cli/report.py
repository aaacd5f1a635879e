"""`calibrate report`: the report of a study, made anew from what its folder holds."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from calibrator.advice.types import Recommendation
from calibrator.cli.delivery import Format, print_view, text, write_form, write_reports
from calibrator.cli.question import again_command, current_question
from calibrator.cli.reconsider import settled
from calibrator.cli.view import counts, study_view
from calibrator.errors import StudyConfigError
from calibrator.handoff.conclude import Conclusion
from calibrator.laws.fit import design_posterior, fit_runs
from calibrator.laws.fitted import FittedStratum
from calibrator.laws.types import FitResult, Run, StratumFit
from calibrator.study.config import StudyConfig
from calibrator.study.results import TrialResult, load_results
from calibrator.study.store import StudyFolder, open_study, read_json, read_record
from calibrator.sweep.confirm import in_fit
from calibrator.sweep.questions import is_confirmation, question_of
from calibrator.verdicts.types import Verdict
from calibrator.wording import plural
from reports.view import StudyView, stratum_key

LOST = "recommendation.json is gone: the command below writes it anew."
SUFFIXES: dict[str, Format] = {
    ".html": "html",
    ".htm": "html",
    ".md": "markdown",
    ".json": "json",
    ".txt": "terminal",
}


def report_study(root: Path, form: Format | None, out: Path | None) -> None:
    """Make the report of the study in `root`, whatever state it is in. Trials and answers stay as they are.

    Without options report.html, report.md and the figures are written anew and the terminal form is printed. A format
    alone goes to stdout (HTML to report.html), with `out` to that file. Raises StudyConfigError when `root` is no study
    or the format cannot be told from the name of `out`.
    """
    if out is not None:
        _refuse_what_is_no_report(root, out)
    form = form or (None if out is None else _form_of(out))
    view = view_of(root)
    if form is None:
        write_reports(view, root)
        print_view(view)
    elif out is not None:
        write_form(view, form, out)
    elif form == "html":
        write_form(view, form, root / "report.html")
    elif form == "terminal":
        print_view(view)
    else:
        sys.stdout.write(text(view, form))


def view_of(root: Path) -> StudyView:
    """What the study says now: its own recommendation where there is one, never a new one."""
    study, config = open_study(root)
    results = load_results(study)
    advice = read_record(study.recommendation, Recommendation) if study.recommendation.is_file() else None
    behind = _behind(current_question(study, config), advice, results)
    conclusion = _conclusion(config, study, results, advice, [result.run() for result in behind])
    view = study_view(config, study, results, conclusion, recorded_manifest(study, results))
    lost = f"calibrate recommend {shlex.quote(str(root))}" if conclusion.refusal == LOST else None
    again = again_command(study, config, advice)
    return dataclasses.replace(
        view, unfinished=_unfinished(study, view, len(behind), again), next_command=lost
    )


def recorded_manifest(study: StudyFolder, results: Sequence[TrialResult]) -> dict[str, Any]:
    """manifest.json; before the sweep ends, what the trials and resolved.json say instead."""
    if study.manifest.is_file():
        return read_json(study.manifest)
    return {"digests": read_json(study.resolved).get("digests", {}), **counts(results)}


def _conclusion(
    config: StudyConfig,
    study: StudyFolder,
    results: Sequence[TrialResult],
    advice: Recommendation | None,
    runs: Sequence[Run],
) -> Conclusion:
    """Fit and recommendation are those that the study hands over; before there are any, the runs are fitted."""
    if advice is None and study.fit.is_file():
        return _refusal(config, study, results)
    if advice is None or not study.fit.is_file():
        fitted = fit_runs(runs)
        refusal = None if advice else "The sweep has not ended; `calibrate run` goes on with it."
        return Conclusion(fitted, FitResult(strata=[each.summary for each in fitted]), advice, refusal)
    fit = read_record(study.fit, FitResult)
    return Conclusion([_with_posterior(stratum, runs) for stratum in fit.strata], fit, advice, None)


def _refusal(config: StudyConfig, study: StudyFolder, results: Sequence[TrialResult]) -> Conclusion:
    """A refusal is no file: its sentence is found again. Where there would be an answer, it was lost, not refused."""
    conclusion, _ = settled(config, study, results)
    if conclusion.recommendation is None:
        return conclusion
    return dataclasses.replace(conclusion, recommendation=None, refusal=LOST)


def _with_posterior(stratum: StratumFit, runs: Sequence[Run]) -> FittedStratum:
    """A stratum of fit.json with its draws, for the band of the boundary: none where it rests on other runs."""
    key = stratum_key(stratum.estimator, stratum.strata)
    own = tuple(run for run in runs if stratum_key(run.estimator, run.strata) == key)
    known = stratum.boundary is not None and len(own) == stratum.runs
    return FittedStratum(stratum, design_posterior(own) if known else None, own)


def _behind(
    config: StudyConfig, advice: Recommendation | None, results: Sequence[TrialResult]
) -> list[TrialResult]:
    """Trials that the fit behind `advice` rests on, by the rules of `calibrate run`: no test of the answer is one.

    Where a confirmation died, those of this question entered the fit.
    """
    confirmation = advice.confirmation if advice else None
    died = confirmation is not None and any(Verdict(word).is_event for word in confirmation.verdicts)
    question = question_of(config)
    return [
        result for result in in_fit(advice, results) if died or not is_confirmation(question, result.stage)
    ]


def _unfinished(study: StudyFolder, view: StudyView, now: int, again: str) -> str | None:
    if not study.fit.is_file():
        return "The sweep has not ended: what stands here is from the trials that are finished so far."
    advice = view.recommendation
    if advice is None:
        return None
    then = sum(stratum.runs for stratum in view.fit.strata)
    if then != now:
        return (
            f"The recommendation rests on {plural(then, 'run')}, the study holds {now} now: `{again}` takes all "
            "of them into account."
        )
    return None


def _refuse_what_is_no_report(root: Path, out: Path) -> None:
    """Inside the study's folder only report.* directly in it may be replaced, and only files."""
    if not out.name or out.is_dir():
        raise StudyConfigError(f"--out {out}: name a file")
    if out.exists() and not out.is_file():
        raise StudyConfigError(f"--out {out}: is no regular file")
    folder, study = (
        out.parent.resolve(),
        root.resolve(),
    )  # a link of that name would be replaced, not followed
    if folder.is_relative_to(study) and (folder != study or out.stem != "report"):
        raise StudyConfigError(
            f"--out {out}: lies among the study's own files; choose another place, or report.* directly in its folder"
        )


def _form_of(out: Path) -> Format:
    try:
        return SUFFIXES[out.suffix.lower()]
    except KeyError:
        raise StudyConfigError(
            f"--out {out}: the format cannot be told from the name; add --format {', '.join(get_args(Format))}"
        ) from None
