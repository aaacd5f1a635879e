"""JSON Schemas of the files of a study, generated from the models that read and write them.

    python -m calibrator.study.schemas docs/schemas

writes them; a test fails while the committed ones differ.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, create_model

import calibrator.advice.prediction
import calibrator.advice.types
import calibrator.laws.types
import calibrator.study.config
import calibrator.verdicts.settings
import calibrator.verdicts.types
import trainer.config
import trainer.metrics
from calibrator.advice.prediction import ConfirmationRecord
from calibrator.advice.types import Recommendation
from calibrator.laws.types import FitResult
from calibrator.study.config import SCHEMA_VERSION, StudyConfig
from calibrator.verdicts.types import RunVerdict
from trainer.files import write_atomically
from trainer.metrics import MetricsRow

DIALECT = "https://json-schema.org/draft/2020-12/schema"
WRITTEN: dict[str, type[BaseModel]] = {
    "recommendation": Recommendation,
    "fit": FitResult,
    "verdict": RunVerdict,
    "confirmation": ConfirmationRecord,
}
"""Files that the program writes: every key is there."""
DOCUMENTED: tuple[ModuleType, ...] = (
    calibrator.advice.types,
    calibrator.advice.prediction,
    calibrator.laws.types,
    calibrator.study.config,
    calibrator.verdicts.settings,
    calibrator.verdicts.types,
    trainer.config,
    trainer.metrics,
)
"""Modules whose models explain their fields in the text below each. Read here, from the source: having pydantic do it
would cost every command a twentieth of a second."""
ALWAYS = ("update", "version", "learning_rate", "cumulative_lr", "reward_mean")
"""Fields of every row of metrics.jsonl."""


def schemas() -> dict[str, dict[str, Any]]:
    """Schema of each kind of file by its name under docs/schemas, without `.schema.json`."""
    found = {name: model.model_json_schema(mode="serialization") for name, model in WRITTEN.items()}
    found["metrics-row"] = _row_schema()
    found["study"] = StudyConfig.model_json_schema(mode="validation")
    return {name: _published(name, schema) for name, schema in found.items()}


def write_schemas(folder: Path) -> list[Path]:
    """Write all schemas; returns their files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, schema in schemas().items():
        files.append(folder / f"{name}.schema.json")
        write_atomically(files[-1], json.dumps(schema, indent=2) + "\n")
    return files


def _published(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with its dialect and version, and a description at every field that has one in the code."""
    _describe(schema.get("title", ""), schema)
    for title, inner in schema.get("$defs", {}).items():
        _describe(title, inner)
    version = schema["properties"].get("schema_version")
    if version is not None:
        version.update(const=SCHEMA_VERSION)
    return {"$schema": DIALECT, "$id": f"{name}.schema.json", "x-schema-version": SCHEMA_VERSION, **schema}


def _row_schema() -> dict[str, Any]:
    """Rows of metrics.jsonl: what was not finite is null and named under `non_finite`."""
    fields: dict[str, Any] = {name: (hint, ...) for name, hint in get_type_hints(MetricsRow).items()}
    model = create_model("MetricsRow", __config__=ConfigDict(extra="forbid"), **fields)
    schema = model.model_json_schema()
    for field in schema["properties"].values():
        if field.get("type") == "number":
            field["type"] = ["number", "null"]
    return {**schema, "required": list(ALWAYS)}


def _describe(title: str, schema: dict[str, Any]) -> None:
    texts = dict(_texts(title))
    for name, field in schema.get("properties", {}).items():
        if name in texts:
            field.setdefault("description", texts[name])


def _texts(class_name: str) -> Iterator[tuple[str, str]]:
    """Fields of a class with the string below each, as the source has them."""
    for module in DOCUMENTED:
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.ClassDef) and node.name == class_name:
                yield from _attribute_texts(node.body)


def _attribute_texts(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, below in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            text = below.value if isinstance(below, ast.Expr) else None
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield field.target.id, inspect.cleandoc(text.value).replace("\n", " ")


if __name__ == "__main__":
    for path in write_schemas(Path(sys.argv[1])):
        print(path)
