"""Courses of rewards, and logs of them as the frameworks write them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrator.runlogs.judged import JudgedLog, judge_log
from calibrator.runlogs.settings import settings_of

Rows = list[dict[str, Any]]


def reward_course(rows: int = 200, *, dead_from: int | None = None, seed: int = 0) -> list[float]:
    """Mean rewards of 256 answers a row: rising from 0.3 to 0.7, and to 0 within ten rows from `dead_from` on."""
    rng = np.random.default_rng(seed)
    level = 0.7 - 0.4 * np.exp(-np.arange(rows) / 60.0)
    if dead_from is not None:
        level[dead_from:] *= np.exp(-np.arange(1, rows - dead_from + 1) / 3.0)
    return [float(x) for x in rng.binomial(256, level) / 256]


@pytest.fixture
def course() -> Callable[..., list[float]]:
    """`reward_course`."""
    return reward_course


@pytest.fixture
def log(tmp_path: Path) -> Callable[..., JudgedLog]:
    """Judge a log given as rows (JSON lines), text or bytes; `name` is that of the file, the rest are settings."""

    def log(content: Rows | str | bytes, *, name: str = "log.jsonl", **fields: Any) -> JudgedLog:
        path = tmp_path / name
        if isinstance(content, list):
            content = "".join(json.dumps(row) + "\n" for row in content)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return judge_log(path, settings_of(fields, source="test"))

    return log


@pytest.fixture
def verl() -> Callable[..., Rows]:
    """Rows of verl's file logger; further columns as values or functions of the row."""

    def rows(rewards: list[float], *, start: int = 1, **columns: Any) -> Rows:
        fixed = {"actor/lr": 1e-6, "actor/grad_norm": 0.3, **columns}

        def row(index: int, reward: float) -> dict[str, Any]:
            more = {name: value(index) if callable(value) else value for name, value in fixed.items()}
            step = index + start
            return {
                "step": step,
                "data": {"training/global_step": step, "critic/rewards/mean": reward, **more},
            }

        return [row(index, reward) for index, reward in enumerate(rewards)]

    return rows
