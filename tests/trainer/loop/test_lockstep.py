"""The deterministic schedule: same config same bytes, exact resume, lag, learning, non-finite runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from calibrator.runlogs.own import read_metrics
from trainer.checkpoint import checkpoints
from trainer.config import OverlapConfig, ProbeConfig, RunConfig, TaskConfig, TrainerConfig
from trainer.errors import ConfigError, TrainerError
from trainer.loop import rows as row_fields
from trainer.loop import session
from trainer.loop.train import train
from trainer.metrics import MetricsRow


def config(**changes: Any) -> RunConfig:
    defaults: dict[str, Any] = {
        "trainer": TrainerConfig(group_size=4, prompts_per_update=2, warmup=4),
        "probe": ProbeConfig(every=4, prompts=16),
        "task": TaskConfig(held_out=16),
        "sync_interval": 4,
        "learning_rate": 1e-3,
        "updates": 12,
        "checkpoint_every": 4,
    }
    return RunConfig(**{**defaults, **changes})


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_same_config_and_seed_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        train(config(), tmp_path / name)
    assert (tmp_path / "a/metrics.jsonl").read_bytes() == (tmp_path / "b/metrics.jsonl").read_bytes()
    train(config(seed=1), tmp_path / "c")
    assert (tmp_path / "a/metrics.jsonl").read_bytes() != (tmp_path / "c/metrics.jsonl").read_bytes()


class KilledError(Exception):
    pass


def killed_after(update: int) -> Callable[[Sequence[MetricsRow]], bool]:
    def on_row(seen: Sequence[MetricsRow]) -> bool:
        if len(seen) == update:
            raise KilledError
        return False

    return on_row


@pytest.mark.parametrize("moments", [(1,), (3, 6), (5, 5, 9, 11)])
def test_resumed_run_equals_an_uninterrupted_one(tmp_path: Path, moments: tuple[int, ...]) -> None:
    whole = train(config(evaluate=True), tmp_path / "whole")
    for moment in moments:
        with pytest.raises(KilledError):
            train(config(evaluate=True), tmp_path / "cut", on_row=killed_after(moment))
    assert train(config(evaluate=True), tmp_path / "cut") == whole
    assert (tmp_path / "cut/metrics.jsonl").read_bytes() == (tmp_path / "whole/metrics.jsonl").read_bytes()
    for shard in (tmp_path / "whole").glob("ratios-*"):
        assert (tmp_path / "cut" / shard.name).read_bytes() == shard.read_bytes()


def test_torn_tail_of_the_metrics_is_cut_off(tmp_path: Path) -> None:
    train(config(), tmp_path / "whole")
    with pytest.raises(KilledError):
        train(config(), tmp_path / "cut", on_row=killed_after(7))
    with (tmp_path / "cut/metrics.jsonl").open("ab") as file:
        file.write(b'{"update": 7, "rew')
    train(config(), tmp_path / "cut")
    assert (tmp_path / "cut/metrics.jsonl").read_bytes() == (tmp_path / "whole/metrics.jsonl").read_bytes()


def test_lag_runs_from_0_to_s_minus_1_and_rewards_belong_to_versions(tmp_path: Path) -> None:
    train(config(), tmp_path)
    assert [row["lag_max"] for row in rows(tmp_path)] == [0, 1, 2, 3] * 3
    assert [row["version"] for row in rows(tmp_path)] == [0] * 4 + [4] * 4 + [8] * 4
    assert [row["probe_version"] for row in rows(tmp_path) if "probe_version" in row] == [4, 8, 12]


def test_engine_and_learner_agree_at_lag_0(tmp_path: Path) -> None:
    train(config(), tmp_path)
    fresh = [row for row in rows(tmp_path) if row["lag_max"] == 0]
    # Nine tokens, each within 1e-5 in float32.
    assert max(row["log_ratio_abs_mean"] for row in fresh) < 9e-5
    assert all(row["ess"] == pytest.approx(1.0, abs=1e-4) for row in fresh)


def test_cumulative_learning_rate_is_the_sum_of_what_was_applied(tmp_path: Path) -> None:
    train(config(), tmp_path)
    total = 0.0
    for row in rows(tmp_path):
        total += row["learning_rate"]
        assert row["cumulative_lr"] == pytest.approx(total, rel=1e-12)
    assert rows(tmp_path)[0]["learning_rate"] == pytest.approx(1e-3 / 4)


def test_ratio_shards_hold_every_trajectory_once(tmp_path: Path) -> None:
    train(config(), tmp_path)
    shards = [load_file(path) for path in sorted(tmp_path.glob("ratios-*.safetensors"))]
    updates = [int(update) for shard in shards for update in shard["update"]]
    assert updates == [u for u in range(12) for _ in range(8)]
    groups = [int(group) for shard in shards for group in shard["group"]]
    assert groups == [g for g in range(24) for _ in range(4)]
    assert all(shard["lag"].max() <= 3 for shard in shards)


@pytest.mark.parametrize("groups", [1, 3])
def test_micro_batches_of_whole_groups_change_nothing(tmp_path: Path, groups: int) -> None:
    base = TrainerConfig(group_size=4, prompts_per_update=6, warmup=4)
    train(config(trainer=base), tmp_path / "whole")
    train(config(trainer=base.model_copy(update={"micro_batch_groups": groups})), tmp_path / "parts")
    for whole, part in zip(rows(tmp_path / "whole"), rows(tmp_path / "parts"), strict=True):
        # Sums in another order: float32 dust, which Adam's normalisation lets grow over 12 updates.
        assert part["reward_mean"] == whole["reward_mean"]
        assert part["grad_norm"] == pytest.approx(whole["grad_norm"], rel=1e-2)


def test_a_request_to_stop_ends_the_run_and_a_rerun_does_not_go_on(tmp_path: Path) -> None:
    def stop(seen: Sequence[MetricsRow]) -> bool:
        return len(seen) == 5

    assert train(config(), tmp_path, on_row=stop).ended == "stopped"
    before = (tmp_path / "metrics.jsonl").read_bytes()
    summary = train(config(), tmp_path, on_row=stop)
    assert (summary.updates, summary.ended) == (5, "stopped")
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_non_finite_gradient_ends_the_run_at_its_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = session.Learner.update

    def poisoned(self: Any, rollouts: Any, learning_rate: float) -> Any:
        if int(rollouts.oldest_version[0]) == 4:
            with torch.no_grad():
                self.parameters[0].fill_(float("nan"))
        return original(self, rollouts, learning_rate)

    monkeypatch.setattr(session.Learner, "update", poisoned)
    summary = train(config(), tmp_path)
    assert (summary.updates, summary.ended) == (5, "non_finite")
    assert "grad_norm" in rows(tmp_path)[-1]["non_finite"]
    assert rows(tmp_path)[-1]["grad_norm"] is None


def broken_after(update: int) -> Callable[..., Any]:
    """The learner's update, which leaves finite weights that give no finite logits after `update`."""
    original = session.Learner.update

    def poisoned(self: Any, rollouts: Any, learning_rate: float) -> Any:
        step = original(self, rollouts, learning_rate)
        if self.optimizer.state[self.parameters[0]]["step"] == update + 1:
            with torch.no_grad():
                self.policy.model.lm_head.weight.fill_(1e38)
        return step

    return poisoned


@pytest.mark.parametrize(
    ("update", "field"),
    [(3, "probe_reward"), (7, "probe_reward"), (1, "reward_mean")],
)
def test_a_policy_that_cannot_be_sampled_any_more_has_diverged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, update: int, field: str
) -> None:
    """Noticed by the probe after the update, or, where none is due, by the next cycle."""
    monkeypatch.setattr(session.Learner, "update", broken_after(update))
    summary = train(config(sync_interval=2, evaluate=True), tmp_path)
    assert summary.ended == "non_finite"
    assert field in rows(tmp_path)[-1]["non_finite"]
    assert summary.updates == len(rows(tmp_path)) == (update + 1 if field == "probe_reward" else update + 2)
    assert read_metrics(tmp_path / "metrics.jsonl").non_finite_update == summary.updates - 1


@pytest.mark.parametrize("max_lag", [0, 1])
def test_in_overlap_it_has_diverged_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_lag: int
) -> None:
    """Without lag the rollout process is the first to notice, else the learner's own loss."""
    monkeypatch.setattr(session.Learner, "update", broken_after(1))
    run = config(schedule="overlap", sync_interval=1, overlap=OverlapConfig(max_lag=max_lag))
    summary = train(run, tmp_path)
    assert (summary.updates, summary.ended) == (3, "non_finite")
    assert read_metrics(tmp_path / "metrics.jsonl").non_finite_update == 2


def test_a_policy_that_never_could_be_sampled_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = session.load_policy

    def broken(*arguments: Any, **options: Any) -> Any:
        policy = original(*arguments, **options)
        with torch.no_grad():
            policy.model.lm_head.weight.fill_(1e38)
        return policy

    monkeypatch.setattr(session, "load_policy", broken)
    with pytest.raises(ConfigError, match="not finite before any training"):
        train(config(), tmp_path)


def test_a_run_that_does_not_fit_is_refused_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "free_memory", lambda device: (2**20, None))
    monkeypatch.setattr(session, "load_policy", None)
    with pytest.raises(ConfigError, match="memory: a run needs about"):
        train(config(), tmp_path)


def test_checkpoint_of_another_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KilledError):
        train(config(), tmp_path, on_row=killed_after(6))
    with pytest.raises(ConfigError, match="another configuration"):
        train(config(seed=9), tmp_path)


def test_broken_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(KilledError):
        train(config(), tmp_path, on_row=killed_after(6))
    (path,) = checkpoints(tmp_path)
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(ConfigError, match=path.name):
        train(config(), tmp_path)


class BadTask:
    reward_floor, full_marks = 0.0, 1.0

    def __init__(self, reward: object = float("nan")) -> None:
        self.reward = reward

    def prompts(self, rng: Any, n: int, *, held_out: bool = False) -> list[Any]:
        from trainer.tasks import Example

        return [Example("12345678=", "13605186")] * n

    def score(self, completions: Sequence[str], references: Sequence[str]) -> list[Any]:
        return [self.reward] * len(completions)


@pytest.mark.parametrize("reward", [float("nan"), None, "1"])
def test_a_reward_that_is_no_finite_number_is_an_error_naming_the_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reward: object
) -> None:
    monkeypatch.setattr(session, "load_task", lambda _: BadTask(reward))
    with pytest.raises(TrainerError, match="13605186"):
        train(config(), tmp_path)


@pytest.mark.parametrize("reward", [1, 0.5, np.float32(0.5), np.int64(1)])
def test_numbers_of_any_kind_are_rewards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reward: object
) -> None:
    monkeypatch.setattr(session, "load_task", lambda _: BadTask(reward))
    assert train(config(updates=4), tmp_path).updates == 4


def test_a_task_that_runs_out_of_prompts_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class ShortTask(BadTask):
        def prompts(self, rng: Any, n: int, *, held_out: bool = False) -> list[Any]:
            return super().prompts(rng, n, held_out=held_out)[: n if held_out else 5]

    monkeypatch.setattr(session, "load_task", lambda _: ShortTask(1.0))
    with pytest.raises(ConfigError, match="asked for 8 prompts and returned 5"):
        train(config(), tmp_path)


@pytest.mark.parametrize("method", ["prompts", "score"])
@pytest.mark.parametrize("error", [RuntimeError("boom"), SystemExit(3), KeyError("answer")])
def test_what_the_users_own_code_raises_is_said_to_be_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, error: BaseException
) -> None:
    def raising(*arguments: Any, **options: Any) -> Any:
        raise error

    task = BadTask(1.0)
    monkeypatch.setattr(task, method, raising)
    monkeypatch.setattr(session, "load_task", lambda _: task)
    with pytest.raises(
        ConfigError, match=rf"{method} raised {type(error).__name__}.*test_lockstep\.py, line"
    ):
        train(config(), tmp_path)


def test_an_overflowing_group_mass_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long responses make ratios that float32 cannot hold; the estimators keep them as logarithms."""
    original = row_fields.ratio_statistics

    def overflowing(log_ratios: torch.Tensor, group_size: int) -> dict[str, float]:
        return {**original(log_ratios, group_size), "group_mass_max": float("inf")}

    monkeypatch.setattr(row_fields, "ratio_statistics", overflowing)
    assert train(config(), tmp_path).ended == "finished"
    assert rows(tmp_path)[3]["non_finite"] == ["group_mass_max"]
    assert read_metrics(tmp_path / "metrics.jsonl").non_finite_update is None


def test_a_parameter_without_gradient_survives_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = session.load_policy

    def with_idle_parameter(*arguments: Any, **options: Any) -> Any:
        policy = original(*arguments, **options)
        policy.model.register_parameter("idle", torch.nn.Parameter(torch.zeros(3)))
        return policy

    monkeypatch.setattr(session, "load_policy", with_idle_parameter)
    with pytest.raises(KilledError):
        train(config(), tmp_path, on_row=killed_after(6))
    assert train(config(), tmp_path).updates == 12


@pytest.mark.slow
def test_training_improves_the_policy(tmp_path: Path) -> None:
    run = RunConfig(sync_interval=4, learning_rate=5e-4, updates=60, evaluate=True)
    summary = train(run, tmp_path)
    assert summary.held_out_before is not None
    assert summary.held_out_after is not None
    assert 0.35 < summary.held_out_before < 0.46
    assert summary.held_out_after > 0.6
