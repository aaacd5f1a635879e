"""Two gloo processes on the CPU make the run that one makes: same rollouts, same updates, same checkpoints."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from trainer.checkpoint import checkpoints
from trainer.config import LoraConfig, ProbeConfig, RunConfig, TaskConfig, TrainerConfig, VllmConfig
from trainer.errors import ConfigError, EnvironmentFailedError
from trainer.loop.session import check_team
from trainer.loop.train import train
from trainer.metrics import MetricsRow
from trainer.models.memory import Gpus

CLOSE = 1e-5
"""Of weights of about 1 after 10 updates: the same sums in another order, in float32."""
LORA = LoraConfig(rank=4, alpha=8.0)


def config(lora: LoraConfig | None = None, **changes: Any) -> RunConfig:
    """One cycle: all rollouts are drawn, and so recorded, before anything is learned from them."""
    trainer = {"group_size": 4, "prompts_per_update": 3, "warmup": 2, **changes.pop("trainer", {})}
    return RunConfig(
        **{
            "trainer": TrainerConfig(lora=lora, **trainer),
            "probe": ProbeConfig(every=10, prompts=16),
            "task": TaskConfig(held_out=16),
            "sync_interval": 10,
            "learning_rate": 1e-3,
            "updates": 10,
            **changes,
        }
    )


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def made(run: RunConfig, folder: Path, *, processes: int) -> dict[str, torch.Tensor]:
    """Weights of the policy at the end."""
    train(run, folder, processes=processes, policy_folder=folder / "policy")
    return load_file(folder / "policy/model.safetensors")


def gap(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    assert a.keys() == b.keys()
    return max(float((a[name] - b[name]).abs().max()) for name in a)


@pytest.mark.slow
@pytest.mark.parametrize("lora", [None, LORA], ids=["all weights", "adapters"])
def test_ten_updates_on_recorded_rollouts_are_those_of_one_process(
    tmp_path: Path, lora: LoraConfig | None
) -> None:
    run = config(lora)
    one, two = (made(run, tmp_path / str(n), processes=n) for n in (1, 2))
    shards = [load_file(next((tmp_path / n).glob("ratios-*.safetensors"))) for n in ("1", "2")]
    assert torch.equal(shards[0]["reward"], shards[1]["reward"])
    assert len(shards[0]["reward"]) == 10 * 12
    assert gap(one, two) < CLOSE
    start = load_file(Path(sys.modules["trainer.models"].EMBEDDED_FOLDER) / "model.safetensors")
    assert gap(one, start) > 100 * CLOSE
    for a, b in zip(rows(tmp_path / "1"), rows(tmp_path / "2"), strict=True):
        assert a.keys() == b.keys()
        for name in ("loss", "entropy", "grad_norm", "grad_cosine", "ess", "cap_activation"):
            assert b.get(name, 0.0) == pytest.approx(a.get(name, 0.0), rel=1e-3, abs=1e-5), name
    assert rows(tmp_path / "1")[-1]["probe_reward"] == rows(tmp_path / "2")[-1]["probe_reward"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "trainer"),
    [
        ({}, {"micro_batch_groups": 1, "gradient_checkpointing": True, "prompts_per_update": 5}),
        ({}, {"prompts_per_update": 1}),  # the second process has no group at all
        ({"sync_interval": 2}, {"behaviour_logprobs": "learner", "share_prompts": False}),
    ],
    ids=["recomputed, uneven", "an idle process", "mu recomputed"],
)
def test_other_settings_make_the_same_run(
    tmp_path: Path, changes: dict[str, Any], trainer: dict[str, Any]
) -> None:
    run = config(trainer=trainer, **{"updates": 4, "sync_interval": 4, **changes})
    one, two = (made(run, tmp_path / str(n), processes=n) for n in (1, 2))
    assert gap(one, two) < CLOSE
    if run.trainer.behaviour_logprobs == "learner":  # in the learner's own shapes: ratios of exactly 1
        assert [row["log_ratio_max"] for row in rows(tmp_path / "2") if row["lag_max"] == 0] == [0.0, 0.0]


class KilledError(Exception):
    pass


def killed_at_5(seen: Sequence[MetricsRow]) -> bool:
    if len(seen) == 5:
        raise KilledError
    return False


@pytest.mark.slow
@pytest.mark.parametrize("lora", [None, LORA], ids=["all weights", "adapters"])
@pytest.mark.parametrize(("first", "then"), [(1, 2), (2, 1)])
def test_a_run_goes_on_with_another_number_of_processes(
    tmp_path: Path, first: int, then: int, lora: LoraConfig | None
) -> None:
    run = config(lora, sync_interval=2, checkpoint_every=2, updates=6)
    whole = made(run, tmp_path / "whole", processes=1)
    with pytest.raises(KilledError):
        train(run, tmp_path / "cut", processes=first, on_row=killed_at_5)
    (path,) = checkpoints(tmp_path / "cut")
    assert path.name == "checkpoint-000004.safetensors"
    assert gap(whole, made(run, tmp_path / "cut", processes=then)) < CLOSE
    a, b = rows(tmp_path / "whole")[-2], rows(tmp_path / "cut")[-2]
    assert b["grad_cosine"] == pytest.approx(a["grad_cosine"], abs=1e-4)  # the previous gradient went along
    assert not active_children()


@pytest.mark.slow
def test_checkpoints_have_one_format(tmp_path: Path) -> None:
    run = config(sync_interval=2, checkpoint_every=2)
    for n in (1, 2):
        with pytest.raises(KilledError):
            train(run, tmp_path / str(n), processes=n, on_row=killed_at_5)
    one, two = (load_file(checkpoints(tmp_path / n)[0]) for n in ("1", "2"))
    assert {name: tensor.shape for name, tensor in one.items()} == {n: t.shape for n, t in two.items()}
    assert gap(one, two) < CLOSE


@pytest.mark.slow
def test_a_process_that_dies_ends_the_run_and_the_next_call_continues(tmp_path: Path) -> None:
    run = config(sync_interval=2, checkpoint_every=2)

    def kills(seen: Sequence[MetricsRow]) -> bool:
        if len(seen) == 5:
            for child in active_children():
                os.kill(child.pid or 0, signal.SIGKILL)
        return False

    with pytest.raises(EnvironmentFailedError, match="a process of the run is gone"):
        train(run, tmp_path, processes=2, on_row=kills)
    assert train(run, tmp_path, processes=1).updates == 10


@pytest.mark.slow
def test_the_asynchronous_schedule_has_several_processes_too(tmp_path: Path) -> None:
    run = config(LORA, schedule="overlap", sync_interval=2, updates=6)
    assert train(run, tmp_path, processes=2).updates == 6
    fresh = [row for row in rows(tmp_path) if row["lag_max"] == 0]
    assert all(row["log_ratio_max"] < 1e-4 for row in fresh)


@pytest.mark.slow
def test_torchrun_starts_the_same_run(tmp_path: Path) -> None:
    run = config(updates=4, sync_interval=4)
    (tmp_path / "run.toml").write_text(
        "learning_rate = 1e-3\nupdates = 4\nsync_interval = 4\n"
        "[trainer]\ngroup_size = 4\nprompts_per_update = 3\nwarmup = 2\n"
        "[probe]\nevery = 10\nprompts = 16\n[task]\nheld_out = 16\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    found = subprocess.run(
        [*command, "-m", "trainer", str(tmp_path / "run.toml"), "--out", str(tmp_path / "two")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout.splitlines()[-1])["updates"] == 4
    one = made(run, tmp_path / "one", processes=1)
    assert gap(one, load_file(tmp_path / "two/policy/model.safetensors")) < CLOSE


def test_what_several_processes_cannot_do_is_refused() -> None:
    check_team(config(), 2, None)
    with pytest.raises(ConfigError, match=r"staleness_every = 1: several processes cannot"):
        check_team(config(probe=ProbeConfig(every=10, prompts=16, staleness_every=1)), 2, None)
    with pytest.raises(ConfigError, match="set engine = 'vllm-server'"):
        check_team(config(engine="vllm"), 2, None)
    wide = config(engine="vllm-server", vllm=VllmConfig(tensor_parallel=4))
    check_team(wide, 4, Gpus(2**36, 8))
    with pytest.raises(ConfigError, match="need 9 GPUs, and 8 are visible"):
        check_team(wide, 5, Gpus(2**36, 8))
