"""Files of a conclusion: what is written, kept, read back, refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from calibrator.advice.types import Recommendation
from calibrator.errors import CorruptStudyError, StudyConfigError
from calibrator.handoff.conclude import Conclusion, study_cost
from calibrator.handoff.write import read_recommendation, read_run, recommended_run, write_conclusion
from calibrator.laws.types import FitResult
from calibrator.study.config import StudyConfig, parse_config
from calibrator.study.store import StudyFolder

Maker = Callable[..., Conclusion]


@pytest.fixture
def conclusion(advice: Callable[..., Recommendation]) -> Maker:
    return lambda **changes: Conclusion([], FitResult(strata=[]), advice(**changes), None)


def test_what_is_written_is_read_back(tmp_path: Path, conclusion: Maker) -> None:
    study, config = StudyFolder(tmp_path), StudyConfig()
    said = conclusion(learning_rate=3.3e-4)
    write_conclusion(config, study, said)
    assert read_recommendation(study) == said.recommendation
    run = read_run(study.trainer_toml)
    assert said.recommendation is not None
    assert run == recommended_run(config, said.recommendation)
    assert (run.learning_rate, run.sync_interval, run.trainer.group_size) == (3.3e-4, 4, 16)


def test_a_replaced_recommendation_is_kept_and_an_equal_one_is_not(tmp_path: Path, conclusion: Maker) -> None:
    study, config = StudyFolder(tmp_path), StudyConfig()
    previous = tmp_path / "recommendation.previous.json"
    write_conclusion(config, study, conclusion())
    write_conclusion(config, study, conclusion())
    assert not previous.exists()
    write_conclusion(config, study, conclusion(horizon=800))
    assert json.loads(previous.read_text())["horizon"] == 400
    write_conclusion(config, study, Conclusion([], FitResult(strata=[]), None, "nothing"))
    assert not study.recommendation.exists()
    assert not study.trainer_toml.exists()
    assert json.loads(previous.read_text())["horizon"] == 800


def test_an_edited_trainer_toml_is_obeyed_and_a_wrong_one_is_named(tmp_path: Path, conclusion: Maker) -> None:
    study = StudyFolder(tmp_path)
    write_conclusion(StudyConfig(), study, conclusion())
    text = study.trainer_toml.read_text()
    study.trainer_toml.write_text(text.replace("updates = 400", "updates = 50"))
    assert read_run(study.trainer_toml).updates == 50
    study.trainer_toml.write_text(text.replace("sync_interval = 4", "sync_interval = 0"))
    with pytest.raises(StudyConfigError, match=r"trainer\.toml.*sync_interval = 0"):
        read_run(study.trainer_toml)
    study.recommendation.write_text('{"sync_interval": 4}')
    with pytest.raises(CorruptStudyError, match=r"recommendation\.json"):
        read_recommendation(study)


def test_the_embedded_default_has_an_assumed_cost_that_is_kept(tmp_path: Path) -> None:
    study = StudyFolder(tmp_path)
    cost = study_cost(StudyConfig(), study, [])
    assert cost is not None
    assert cost.origin == "assumed"
    study.cost.write_text(cost.model_copy(update={"learn": 9.0}).model_dump_json())
    kept = study_cost(StudyConfig(), study, [])
    assert kept is not None
    assert kept.learn == 9.0


def test_another_model_has_no_cost_before_a_trial_is_finished(tmp_path: Path) -> None:
    config = parse_config(StudyConfig, {"model": {"path": "elsewhere"}}, source="test")
    assert study_cost(config, StudyFolder(tmp_path), []) is None
