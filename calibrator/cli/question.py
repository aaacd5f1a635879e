"""The question that a study answers at present, and the fit that its answer rests on."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrator.advice.types import Recommendation
from calibrator.cli.reconsider import settled
from calibrator.errors import NothingToSayError
from calibrator.handoff.conclude import Conclusion
from calibrator.handoff.write import read_recommendation
from calibrator.laws.fitted import FittedStratum
from calibrator.study.config import StudyConfig, parse_config
from calibrator.study.results import TrialResult, load_results
from calibrator.study.store import StudyFolder, open_study
from calibrator.sweep.confirm import in_fit

QUESTION = ("horizon", "risk", "rule", "objective")


@dataclass(frozen=True)
class StudyFit:
    """A study with the fit of the estimator that decides."""

    study: StudyFolder
    config: StudyConfig
    stratum: FittedStratum
    conclusion: Conclusion
    advice: Recommendation | None
    """What the study recommends at present."""
    own: tuple[TrialResult, ...]
    """All finished trials of the estimator; those that confirm or check the recommendation are not in the fit."""
    later: tuple[TrialResult, ...]
    """Those that are not in the fit."""


def current_question(study: StudyFolder, made: StudyConfig, **options: dict[str, Any]) -> StudyConfig:
    """The study's configuration with the question of its recommendation, if there is one, and options by section."""
    content = made.model_dump()
    if study.recommendation.is_file():
        advice = read_recommendation(study)
        content["advice"] |= {key: getattr(advice, key) for key in QUESTION}
    for section, values in options.items():
        content[section] |= {key: value for key, value in values.items() if value is not None}
    return parse_config(StudyConfig, content, source=str(study.root))


def again_command(study: StudyFolder, made: StudyConfig, advice: Recommendation | None) -> str:
    """`calibrate recommend` with the options of the question that the study answers at present."""
    command = ["calibrate", "recommend", str(study.root)]
    if advice is not None:
        usual = made.advice.model_dump()
        asked = {key: getattr(advice, key) for key in QUESTION if getattr(advice, key) != usual[key]}
        asked |= {} if advice.schedule == "lockstep" else {"schedule": advice.schedule}
        command += [part for key, value in asked.items() for part in (f"--{key}", str(value))]
    return shlex.join(command)


def fit_of(root: Path, *, horizon: int | None = None) -> StudyFit:
    """Fit what the study's recommendation rests on. Raises NothingToSayError without a finished run."""
    study, made = open_study(root)
    config = current_question(study, made, advice={"horizon": horizon})
    estimator = config.trainer.estimator
    results = load_results(study)
    advice = read_recommendation(study) if study.recommendation.is_file() else None
    conclusion, used = settled(config, study, in_fit(advice, results))
    stratum = conclusion.stratum(estimator)
    if stratum is None:
        raise NothingToSayError(
            f"{root} has no finished run of estimator {estimator!r}; next: the same `calibrate run` again"
        )
    own = [result for result in results if result.config.trainer.estimator == estimator]
    numbers = {result.number for result in used}
    later = tuple(result for result in own if result.number not in numbers)
    return StudyFit(study, config, stratum, conclusion, advice, tuple(own), later)
