"""Files that hand a conclusion over: fit.json, recommendation.json, trainer.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from calibrator.advice.prediction import ConfirmationRecord
from calibrator.advice.types import Recommendation
from calibrator.errors import StudyConfigError
from calibrator.handoff.conclude import Conclusion
from calibrator.study.config import StudyConfig, describe
from calibrator.study.store import StudyFolder, read_json, read_record, write_json
from trainer.config import RunConfig
from trainer.files import write_atomically

TRAIN_SEED = 0
NEEDED = ("model", "task", "trainer", "sync_interval", "learning_rate", "updates")
"""Keys without which trainer.toml is no hand-over: a default in their place would be a guess."""
HEADER = "# Written by `calibrate`, read by `calibrate train --from`. Learning rates are per update.\n"


def write_conclusion(config: StudyConfig, study: StudyFolder, conclusion: Conclusion) -> None:
    """Write what the study says now. A recommendation that it replaces is kept as recommendation.previous.json."""
    advice = conclusion.recommendation
    _keep_previous(study.recommendation, None if advice is None else advice.model_dump(mode="json"))
    write_json(study.fit, conclusion.fit.model_dump(mode="json"))
    if advice is None:
        study.trainer_toml.unlink(missing_ok=True)
        return
    write_json(study.recommendation, advice.model_dump(mode="json"))
    settings = tomli_w.dumps(recommended_run(config, advice).model_dump(mode="json", exclude_none=True))
    write_atomically(study.trainer_toml, HEADER + settings)


def recommended_run(config: StudyConfig, advice: Recommendation) -> RunConfig:
    """The run that the recommendation is for, with the four numbers in it."""
    run = config.run_config(
        estimator=advice.estimator,
        sync_interval=advice.sync_interval,
        learning_rate=advice.learning_rate,
        updates=advice.horizon,
        seed=TRAIN_SEED,
        evaluate=True,
    )
    numbers = {"group_size": advice.group_size, "epsilon": advice.epsilon}
    update: dict[str, Any] = {
        "trainer": run.trainer.model_copy(update={k: v for k, v in numbers.items() if v})
    }
    if advice.schedule == "overlap":
        update |= {
            "schedule": "overlap",
            "overlap": run.overlap.model_copy(update={"max_lag": advice.max_lag}),
        }
    return run.model_copy(update=update)


def read_recommendation(study: StudyFolder) -> Recommendation:
    """Raises StudyConfigError when the study has no recommendation yet, CorruptStudyError when it is broken."""
    if not study.recommendation.is_file():
        raise StudyConfigError(f"{study.root} holds no recommendation.json; `calibrate run` makes one")
    anew = "`calibrate recommend STUDY` writes it anew once it is moved away"
    return read_record(study.recommendation, Recommendation, remedy=anew)


def read_confirmation(study: StudyFolder) -> ConfirmationRecord | None:
    """confirmation.json, None where there is none. Raises CorruptStudyError when it is broken."""
    anew = "move it away; `calibrate confirm STUDY` makes it anew from the runs that were made"
    there = study.confirmation.exists()
    return read_record(study.confirmation, ConfirmationRecord, remedy=anew) if there else None


def read_run(path: Path) -> RunConfig:
    """The run that a file like trainer.toml describes; a user may have edited it. Raises StudyConfigError."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        missing = [key for key in NEEDED if key not in content]
        if missing:
            raise StudyConfigError(f"{path} lacks {', '.join(missing)}, for which a default would be a guess")
        return RunConfig.model_validate(content)
    except FileNotFoundError:
        raise StudyConfigError(f"{path} is missing; `calibrate run` writes it") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StudyConfigError(f"{path} is not TOML: {error}") from error
    except ValidationError as error:
        raise StudyConfigError(f"{path}: {describe(error)}") from error


def _keep_previous(path: Path, new: object) -> None:
    if path.is_file() and read_json(path) != new:
        path.replace(path.with_name("recommendation.previous.json"))
