"""The probe of larger groups: recorded once, at the largest lag, and nothing else changes by it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from trainer.config import ProbeConfig, RunConfig, TrainerConfig
from trainer.loop.group_probe import probed_update
from trainer.loop.train import train


def config(size: int, **changes: object) -> RunConfig:
    given = {
        "trainer": TrainerConfig(group_size=4, prompts_per_update=2, warmup=0),
        "probe": ProbeConfig(every=100, prompts=8, group_size=size),
        "sync_interval": 3,
        "updates": 7,
        "learning_rate": 1e-3,
    }
    return RunConfig.model_validate(given | changes)


def test_groups_are_drawn_at_the_largest_lag_and_the_run_stays_the_same(tmp_path: Path) -> None:
    train(config(12), tmp_path / "probed")
    train(config(0), tmp_path / "plain")
    (path,) = (tmp_path / "probed").glob("group-ratios-*.safetensors")
    columns = load_file(path)
    assert sorted(columns) == ["group", "lag", "log_ratio", "reward", "update"]
    assert {values.shape for values in columns.values()} == {(8 * 12,)}
    assert set(columns["update"]) == {2}
    assert set(columns["lag"]) == {2}
    np.testing.assert_array_equal(np.bincount(columns["group"]), [12] * 8)
    assert np.isfinite(columns["log_ratio"]).all()
    assert np.abs(columns["log_ratio"]).max() > 1e-4  # two updates away from what drew them
    assert not list((tmp_path / "plain").glob("group-*"))
    metrics = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("probed", "plain")]
    assert metrics[0] == metrics[1]


@pytest.mark.parametrize(
    ("S", "updates", "at"), [(3, 7, 2), (4, 400, 199), (1, 10, 4), (16, 16, 15), (16, 15, None)]
)
def test_the_last_update_of_the_middle_cycle_is_probed(S: int, updates: int, at: int | None) -> None:
    assert probed_update(config(8, sync_interval=S, updates=updates)) == at
    assert probed_update(config(0, sync_interval=S, updates=updates)) is None
