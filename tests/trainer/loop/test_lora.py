"""Runs that train adapters: they learn, continue exactly, hold the base by digest, and work under both schedules."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from trainer.checkpoint import checkpoints
from trainer.config import (
    LoraConfig,
    ModelConfig,
    ProbeConfig,
    RunConfig,
    TaskConfig,
    TrainerConfig,
)
from trainer.errors import ConfigError
from trainer.loop.train import train
from trainer.metrics import MetricsRow
from trainer.models import EMBEDDED_FOLDER, load_policy


def config(lora: LoraConfig | None = None, **changes: Any) -> RunConfig:
    lora = lora or LoraConfig(rank=4, alpha=8.0)
    trainer = {"group_size": 8, "prompts_per_update": 4, "warmup": 2, **changes.pop("trainer", {})}
    return RunConfig(
        **{
            "trainer": TrainerConfig(lora=lora, **trainer),
            "probe": ProbeConfig(every=4, prompts=16),
            "task": TaskConfig(held_out=16),
            "sync_interval": 2,
            "learning_rate": 3e-3,
            "updates": 8,
            "checkpoint_every": 2,
            **changes,
        }
    )


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


class KilledError(Exception):
    pass


def killed_at_5(seen: Sequence[MetricsRow]) -> bool:
    if len(seen) == 5:
        raise KilledError
    return False


def test_the_embedded_default_learns_with_adapters(tmp_path: Path) -> None:
    run = config(
        LoraConfig(rank=16), updates=64, trainer={"group_size": 16, "prompts_per_update": 8}, evaluate=True
    )
    run = run.model_copy(update={"task": TaskConfig(held_out=512)})
    summary = train(run, tmp_path)
    assert summary.held_out_before is not None
    assert summary.held_out_after is not None
    # The standard error of each of the two is at most 0.022.
    assert summary.held_out_after > summary.held_out_before + 0.15


def test_a_killed_run_continues_to_the_same_bytes_from_adapters_alone(tmp_path: Path) -> None:
    train(config(), tmp_path / "whole")
    with pytest.raises(KilledError):
        train(config(), tmp_path / "killed", on_row=killed_at_5)
    (path,) = checkpoints(tmp_path / "killed")
    with safe_open(path, framework="pt") as file:
        assert all("lora" in name for name in file.keys() if name != "previous_gradient")  # noqa: SIM118
        assert json.loads(file.metadata()["progress"])["base"] is not None
    train(config(), tmp_path / "killed")
    assert (tmp_path / "whole/metrics.jsonl").read_bytes() == (tmp_path / "killed/metrics.jsonl").read_bytes()


def test_adapters_of_another_base_are_refused(tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(EMBEDDED_FOLDER, model)
    run = config(model=ModelConfig(path=str(model)))
    with pytest.raises(KilledError):
        train(run, tmp_path / "run", on_row=killed_at_5)
    policy = load_policy(ModelConfig(path=str(model)), device="cpu")
    with torch.no_grad():
        policy.model.lm_head.weight.mul_(2)
    policy.model.save_pretrained(model)
    with pytest.raises(ConfigError, match="other weights than model"):
        train(run, tmp_path / "run")


def test_at_lag_0_ratios_are_1_to_rounding(tmp_path: Path) -> None:
    train(config(updates=4), tmp_path)
    fresh = [row for row in rows(tmp_path) if row["lag_max"] == 0]
    assert len(fresh) == 2
    assert all(row["log_ratio_max"] < 1e-5 for row in fresh)
    assert any(row["log_ratio_abs_mean"] > 1e-4 for row in rows(tmp_path) if row["lag_max"] == 1)


def test_the_asynchronous_schedule_trains_adapters(tmp_path: Path) -> None:
    summary = train(config(schedule="overlap"), tmp_path, policy_folder=tmp_path / "policy")
    assert summary.updates == 8
    fresh = [row for row in rows(tmp_path) if row["lag_max"] == 0]
    assert fresh
    assert all(row["log_ratio_max"] < 1e-5 for row in fresh)
    load_policy(ModelConfig(path=str(tmp_path / "policy")), device="cpu")


def test_gradient_checkpointing_and_bfloat16_run(tmp_path: Path) -> None:
    run = config(trainer={"gradient_checkpointing": True, "dtype": "bfloat16"}, updates=4)
    assert train(run, tmp_path).updates == 4
    assert all(row["grad_norm"] > 0 for row in rows(tmp_path))
