"""The published schemas: generated from the models, and followed by what the repository holds."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from calibrator.advice.types import Recommendation
from calibrator.cli.source import EMBEDDED_STUDY, PRESETS, TEMPLATE
from calibrator.errors import CorruptStudyError, StudyConfigError
from calibrator.handoff.write import read_recommendation
from calibrator.study.config import SCHEMA_VERSION, load_study_config
from calibrator.study.schemas import schemas, write_schemas
from calibrator.study.store import StudyFolder, write_json
from trainer.metrics import MetricsRow, encode_row

ROOT = Path(__file__).parents[3]
PUBLISHED = ROOT / "docs" / "schemas"
STUDIES = [
    EMBEDDED_STUDY,
    TEMPLATE,
    *sorted(PRESETS.glob("*.toml")),
    *sorted((ROOT / "examples").glob("*.toml")),
]


def problems(name: str, content: Any) -> list[str]:
    schema = json.loads((PUBLISHED / f"{name}.schema.json").read_text())
    return [error.message for error in Draft202012Validator(schema).iter_errors(content)]


def test_the_published_schemas_are_those_of_the_models(tmp_path: Path) -> None:
    """After a change of a model: python -m calibrator.study.schemas docs/schemas."""
    made = {path.name: path.read_text() for path in write_schemas(tmp_path)}
    assert made == {path.name: path.read_text() for path in PUBLISHED.iterdir()}


@pytest.mark.parametrize("name", schemas())
def test_each_is_a_schema_with_a_version_that_refuses_unknown_keys(name: str) -> None:
    schema = schemas()[name]
    Draft202012Validator.check_schema(schema)
    assert schema["x-schema-version"] == SCHEMA_VERSION
    assert schema["additionalProperties"] is False
    assert all(
        inner.get("additionalProperties") is False
        for inner in schema.get("$defs", {}).values()
        if "properties" in inner
    )


def test_fields_are_described_as_in_the_code() -> None:
    found = schemas()
    assert found["metrics-row"]["properties"]["update"]["description"] == "u, counted from 0."
    assert "above 1" in found["recommendation"]["properties"]["extrapolation"]["description"]
    assert "LR x updates" in found["fit"]["$defs"]["BudgetFit"]["properties"]["B"]["description"]


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_shipped_studies_follow_the_schema(path: Path) -> None:
    assert problems("study", tomllib.loads(path.read_text())) == []


@pytest.mark.parametrize(
    "content",
    [
        {"advise": {}},
        {"sweep": {"sync_intervals": [0]}},
        {"advice": {"risk": 0.9}},
        {"task": {"held_out": "many"}},
        {"schema_version": 2},
    ],
)
def test_the_schema_refuses_what_the_program_refuses(content: dict[str, Any]) -> None:
    assert problems("study", content)


def test_a_row_with_a_number_that_was_not_finite_follows_the_schema() -> None:
    row: dict[str, Any] = {"update": 0, "version": 0, "learning_rate": 1e-3, "cumulative_lr": 1e-3}
    line = encode_row({**row, "reward_mean": 0.5, "loss": float("nan")})
    assert problems("metrics-row", json.loads(line)) == []
    assert problems("metrics-row", {**json.loads(line), "losss": 1.0})
    assert set(schemas()["metrics-row"]["properties"]) == set(MetricsRow.__annotations__)


@pytest.mark.parametrize(
    ("version", "words"),
    [(2, "newer than 1"), (0, "calibrate recommend STUDY"), ("x", "schema version 'x'")],
)
def test_a_file_of_another_version_is_refused_and_says_what_to_do(
    tmp_path: Path, advice: Any, version: object, words: str
) -> None:
    content = advice().model_dump(mode="json")
    study = StudyFolder(tmp_path)
    write_json(study.recommendation, content)
    assert isinstance(read_recommendation(study), Recommendation)
    write_json(study.recommendation, {**content, "schema_version": version, "unheard_of": 1})
    with pytest.raises(CorruptStudyError, match=words):
        read_recommendation(study)


def test_a_study_file_of_another_version_is_refused_for_that_alone(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text("schema_version = 1\n[advice]\nhorizon = 500\n")
    assert load_study_config(path).advice.horizon == 500
    path.write_text("schema_version = 2\n[unheard_of]\nkey = 1\n")
    with pytest.raises(StudyConfigError, match="newer than 1") as error:
        load_study_config(path)
    assert "unheard_of" not in str(error.value)
    path.write_text("schema_version = 0\n")
    with pytest.raises(StudyConfigError, match="calibrate init"):
        load_study_config(path)
