"""Curves for the tests of the verdicts: logs of other frameworks in short form, and simulated runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrator.runlogs.curve import Curve, Series

LOGS = Path(__file__).parents[2] / "data" / "logs"


def empty(name: str = "reward") -> Series:
    return Series(name, *(np.empty(0) for _ in range(4)))


def _column(case: dict[str, Any], name: str) -> np.ndarray:
    values = case["columns"].get(name)
    return np.array(values if isinstance(values, list) else [values] * case["rows"], dtype=np.float64)


def curve_of_case(case: dict[str, Any]) -> Curve:
    """The curve of one log in short form: columns, one entry a row, a row being `updates_per_row` updates."""
    per_row = case.get("updates_per_row", 1)
    steps = _column(case, "step").astype(int)
    latest = {int(step): index for index, step in enumerate(steps)}
    last = [latest[step] for step in sorted(latest)]
    steps = steps[last]
    sparse = "probe" in case["columns"]
    updates = int(steps[-1]) if sparse else (int(steps[-1]) + 1) * per_row
    owner = np.clip(np.searchsorted(steps * per_row, np.arange(updates), side="right") - 1, 0, None)
    columns = {name: _column(case, name)[last] for name in case["columns"]}
    known = {"step", "reward", "probe", "lr"}
    S = case["sync_interval"]
    value = columns.get("probe", columns.get("reward"))
    at = steps * per_row
    unknown = np.full(len(steps), np.nan)
    version = at.astype(float) if sparse else (at // S * S).astype(float)
    keep = np.isfinite(value)
    seen = at.astype(float) if sparse else at + float(per_row)
    series = Series("reward", version[keep], value[keep], unknown[keep], seen[keep])
    bad = np.isnan(columns["grad_norm"]) if "grad_norm" in columns else np.zeros(1, dtype=bool)
    return Curve(
        updates=updates,
        learning_rate=columns["lr"][owner],
        rewards=empty() if sparse else series,
        probes=series if sparse else None,
        witnesses={name: column[owner] for name, column in columns.items() if name not in known},
        non_finite_update=int(at[bad.argmax()]) if bad.any() else None,
    )


@pytest.fixture(params=sorted(path.stem for path in LOGS.glob("*.json")))
def case(request: pytest.FixtureRequest) -> dict[str, Any]:
    """One log of another framework, with what is right about it."""
    return json.loads((LOGS / f"{request.param}.json").read_text())  # type: ignore[no-any-return]


def path(
    rng: np.random.Generator,
    updates: int,
    *,
    start: float = 0.4,
    top: float = 0.95,
    wander: float = 0.35,
    dips: float = 0.0,
    longest: float = 40.0,
    death: int | None = None,
    dead: float = 0.0,
    slope: float = 6.0,
) -> np.ndarray:
    """True success rate of every version 0..updates.

    Saturating growth, wandering on the log-odds over about 12 updates, `dips` deep dips per 1000 updates that
    recover within `longest`, and a death at version `death` towards `dead`.
    """
    v = np.arange(updates + 1)
    level = top - (top - start) * np.exp(-v / 70.0)
    odds, state = np.log(level / (1 - level)), 0.0
    for i in range(updates + 1):
        state = 0.92 * state + wander * (1 - 0.92**2) ** 0.5 * rng.standard_normal()
        odds[i] += state
    level = 1 / (1 + np.exp(-odds))
    for _ in range(rng.poisson(dips * updates / 1000)):
        low, length = rng.uniform(30, max(31, updates - longest)), rng.uniform(8, longest)
        depth = rng.uniform(0.3, 0.95)
        shape = np.clip(1.4 * np.sin(np.pi * np.clip((v - low) / length, 0, 1)), 0, 1)
        level = level * (1 - depth * shape)
    if death is not None:
        after = np.clip(v - death, 0, None)
        level = dead + (level - dead) * np.exp(-after / slope)
    return level


def batch(
    rng: np.random.Generator, level: float, prompts: int, group: int, spread: float = 3.0
) -> tuple[float, float]:
    """Mean reward of prompts x group samples and its standard error with prompts as clusters."""
    level = float(np.clip(level, 1e-9, 1 - 1e-9))
    rates = rng.beta(spread * level, spread * (1 - level), prompts)
    means = rng.binomial(group, rates) / group
    return float(means.mean()), float(means.std(ddof=1) / prompts**0.5)


def simulate(
    seed: int,
    S: int,
    updates: int,
    *,
    prompts: int = 8,
    group: int = 16,
    probe_every: int = 8,
    held_out: int = 64,
    eta: float = 1e-3,
    **shape: float,
) -> Curve:
    """A lockstep run of the given path of success rates, rows and probes as our own trainer writes them."""
    rng = np.random.default_rng(seed)
    level = path(rng, updates, **shape)  # type: ignore[arg-type]
    u = np.arange(updates)
    rows = np.array([batch(rng, level[i // S * S], prompts, group) for i in u]).reshape(-1, 2)
    rewards = Series("reward", (u // S * S).astype(float), rows[:, 0], rows[:, 1], u + 1.0)
    at = np.arange(probe_every, updates + 1, probe_every) if probe_every else np.empty(0, dtype=int)
    probe = np.array([batch(rng, level[i], held_out, 2) for i in at]).reshape(-1, 2)
    probes = Series("probe", at.astype(float), probe[:, 0], probe[:, 1], at.astype(float))
    return Curve(updates, np.full(updates, eta), rewards, probes if len(at) else None)


def drawn(level: np.ndarray, S: int = 1, *, se: float = 0.03, seed: int = 0, eta: float = 1e-3) -> Curve:
    """Rows without probes around a given level for each version, with normal noise and stated errors."""
    u = np.arange(level.size)
    noise = se * np.random.default_rng(seed).standard_normal(level.size)
    value = level[u // S * S] + noise
    series = Series("reward", (u // S * S).astype(float), value, np.full(level.size, se), u + 1.0)
    return Curve(level.size, np.full(level.size, eta), series)


@pytest.fixture
def run() -> Callable[..., Curve]:
    """`simulate`: a lockstep run with rollouts and probes."""
    return simulate


@pytest.fixture
def until() -> Callable[[Curve, int], Curve]:
    """A curve as it stood earlier."""
    return Curve.until


@pytest.fixture
def around() -> Callable[..., Curve]:
    """`drawn`: rows around a stated course."""
    return drawn


@pytest.fixture
def of_case() -> Callable[[dict[str, Any]], Curve]:
    """`curve_of_case`: a log in short form as a curve."""
    return curve_of_case
