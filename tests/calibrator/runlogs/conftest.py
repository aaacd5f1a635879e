"""Courses of rewards, and logs of them as the frameworks write them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrator.runlogs.judged import JudgedLog, judge_log
from calibrator.runlogs.settings import settings_of

Rows = list[dict[str, Any]]


def course(rows: int, *, dead_from: int | None = None, seed: int = 0, top: float = 0.7) -> list[float]:
    """Mean rewards of 16 x 16 answers: rising from 0.3, and near 0 from row `dead_from` on."""
    rng = np.random.default_rng(seed)
    level = top - (top - 0.3) * np.exp(-np.arange(rows) / 60.0)
    if dead_from is not None:
        level[dead_from:] *= np.exp(-np.arange(1, rows - dead_from + 1) / 3.0)
    return [float(x) for x in rng.binomial(256, level) / 256]


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def judged(path: Path, **fields: Any) -> JudgedLog:
    return judge_log(path, settings_of(fields, source="test"))


@pytest.fixture
def log(tmp_path: Path) -> Callable[..., JudgedLog]:
    """Judge a log given as rows (JSON lines) or as text; `name` is that of the file."""

    def log(content: Rows | str | bytes, *, name: str = "log.jsonl", **fields: Any) -> JudgedLog:
        path = tmp_path / name
        if isinstance(content, str):
            path.write_text(content, encoding="utf-8")
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            write_lines(path, content)
        return judged(path, **fields)

    return log
