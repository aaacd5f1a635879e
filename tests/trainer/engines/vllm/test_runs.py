"""Training runs whose rollouts come from vLLM."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from trainer.config import LoraConfig, OverlapConfig, ProbeConfig, RunConfig, TaskConfig, TrainerConfig
from trainer.loop.train import train
from trainer.metrics import MetricsRow

pytestmark = [pytest.mark.vllm, pytest.mark.slow]


def config(**changes: Any) -> RunConfig:
    defaults: dict[str, Any] = {
        "engine": "vllm",
        "trainer": TrainerConfig(group_size=8, prompts_per_update=4, warmup=4),
        "probe": ProbeConfig(every=4, prompts=16),
        "task": TaskConfig(held_out=16),
        "sync_interval": 2,
        "learning_rate": 1e-3,
        "updates": 8,
        "checkpoint_every": 2,
    }
    return RunConfig(**{**defaults, **changes})


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_adapters_reach_vllm_merged_into_the_weights(tmp_path: Path) -> None:
    lora = TrainerConfig(group_size=8, prompts_per_update=4, warmup=0, lora=LoraConfig(rank=8))
    run = config(trainer=lora, learning_rate=5e-3, updates=6)
    assert train(run, tmp_path).ended == "finished"
    fresh = [row for row in rows(tmp_path) if row["lag_max"] == 0]
    stale = [row for row in rows(tmp_path) if row["lag_max"] == 1]
    # Nine tokens, each within 1e-5 in float32; what an update changes is far more.
    assert max(row["log_ratio_abs_mean"] for row in fresh) < 9e-5
    assert min(row["log_ratio_abs_mean"] for row in stale) > 1e-3


class KilledError(Exception):
    pass


def killed_after(update: int) -> Callable[[Sequence[MetricsRow]], bool]:
    def on_row(seen: Sequence[MetricsRow]) -> bool:
        if len(seen) == update:
            raise KilledError
        return False

    return on_row


def test_lockstep_is_exact_and_a_resumed_run_makes_the_same_bytes(tmp_path: Path) -> None:
    assert train(config(), tmp_path / "whole").ended == "finished"
    made = rows(tmp_path / "whole")
    assert [row["lag_max"] for row in made] == [0, 1] * 4
    assert [row["version"] for row in made] == [0, 0, 2, 2, 4, 4, 6, 6]
    # Nine tokens, each within 1e-5 in float32, at every synchronization.
    assert max(row["log_ratio_abs_mean"] for row in made if row["lag_max"] == 0) < 9e-5
    with pytest.raises(KilledError):
        train(config(), tmp_path / "cut", on_row=killed_after(5))
    train(config(), tmp_path / "cut")
    assert (tmp_path / "cut/metrics.jsonl").read_bytes() == (tmp_path / "whole/metrics.jsonl").read_bytes()


def test_training_improves_the_policy(tmp_path: Path) -> None:
    run = RunConfig(engine="vllm", sync_interval=4, learning_rate=5e-4, updates=60, evaluate=True)
    summary = train(run, tmp_path)
    assert summary.held_out_before is not None
    assert summary.held_out_after is not None
    assert 0.35 < summary.held_out_before < 0.46
    assert summary.held_out_after > 0.6


@pytest.mark.parametrize(
    ("engine", "in_flight"), [("vllm", "finish"), ("vllm", "continue"), ("vllm-server", "continue")]
)
def test_overlap(tmp_path: Path, engine: str, in_flight: str) -> None:
    """Rollouts of one version agree with the learner's logprobs for the weights of that version."""
    run = config(engine=engine, schedule="overlap", overlap=OverlapConfig(in_flight=in_flight), updates=12)
    assert train(run, tmp_path).ended == "finished"
    made = rows(tmp_path)
    assert [row["update"] for row in made] == list(range(12))
    assert max(row["lag_max"] for row in made) <= run.lag_bound
    fresh = [row["log_ratio_abs_mean"] for row in made if row["lag_max"] == 0]
    assert fresh  # the first update at least
    assert max(fresh) < 9e-5
    gaps = [row["mismatch_max"] for row in made if "mismatch_max" in row]
    # Due in every second cycle, so three times or more. Of rollouts that continue across a push only the first are
    # certain to have a single version: without them the learner has nothing to push.
    assert len(gaps) >= (3 if in_flight == "finish" else 1)
    assert max(gaps) < 1e-5
