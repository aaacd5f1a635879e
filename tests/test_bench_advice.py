"""What the benchmarks of the advice count: predictions beside measurements, on recorded shards and timings made up."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from safetensors.numpy import save_file


def script(name: str) -> ModuleType:
    path = Path(__file__).parent.parent / "bench" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"bench_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


cost, suggested = script("cost"), script("suggested")


def recorded(folder: Path, group_size: int, seed: int, spread: float = 0.3) -> Path:
    """Shards of a run of 256 updates whose log-ratios do not depend on G."""
    n, updates = 128, 256
    rng = np.random.default_rng([group_size, seed])
    folder.mkdir()
    columns = {
        "update": np.repeat(np.arange(updates), n),
        "group": np.repeat(np.arange(updates * n // group_size), group_size),
        "reward": rng.integers(0, 2, updates * n).astype(np.float32),
        "lag": np.repeat(np.arange(updates) % suggested.S, n),
        "log_ratio": rng.normal(-0.5 * spread**2, spread, updates * n).astype(np.float32),
    }
    save_file(columns, folder / "ratios-000000.safetensors")
    return folder


def test_a_run_with_another_pair_is_predicted_where_ratios_are_alike(tmp_path: Path) -> None:
    source = recorded(tmp_path / "source", 16, 0)
    other = recorded(tmp_path / "other", 8, 1)
    row = suggested.predicted([source], (8, 0.05))
    rows = suggested.compare(row, [suggested.measured(other, 0.05)], 1)
    assert [each.name for each in rows] == ["cap_activation", "lost_mass"]
    assert all(each.holds for each in rows)


def test_a_run_whose_ratios_spread_wider_is_no_hit(tmp_path: Path) -> None:
    source = recorded(tmp_path / "source", 16, 0)
    other = recorded(tmp_path / "other", 8, 1, spread=0.6)
    row = suggested.predicted([source], (8, 0.05))
    assert not any(each.holds for each in suggested.compare(row, [suggested.measured(other, 0.05)], 1))


def test_an_interval_too_wide_to_be_of_use_is_no_hit() -> None:
    wide = suggested.Compared(8, 0.05, "lost_mass", 0.02, 0.01, 0.03, 0.02, [0.02])
    assert not wide.holds


def test_costs_that_follow_the_terms_are_predicted_exactly() -> None:
    timed = {setting: [cycle(setting, noise) for noise in (0.9, 1.0, 1.1)] for setting in cost.plan()}
    rows = cost.compared(timed)
    assert len(rows) == len(cost.SWEPT) + len(cost.REFERENCE) + 2
    for row in rows:
        assert row["error"] == pytest.approx(0, abs=2e-3)


def cycle(setting: tuple[int, int, int], noise: float) -> dict[str, float]:
    S, P, G = setting
    rows = S * P * G
    seconds = {
        "generate": 0.05 + 2e-4 * rows,
        "score": 1e-5 * rows,
        "learn": S * (0.02 + 8e-4 * P * G),
        "synchronize": 0.004,
    }
    return {name: noise * value for name, value in seconds.items()} | {"updates": S}
