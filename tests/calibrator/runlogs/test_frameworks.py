"""The same death in the logs of each framework: same onset once rows are counted in updates, and what was guessed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from calibrator.errors import LogError
from calibrator.runlogs.judged import JudgedLog

DEATH = 120  # row from which the reward halves every two rows
ROWS = 200
Log = Callable[..., JudgedLog]
Course = Callable[..., list[float]]


def by_row(rewards: list[float], **names: Any) -> list[dict[str, Any]]:
    """One row a reward; `reward` names its column, the others are values or functions of the row."""
    reward = names.pop("reward")
    return [
        {reward: value, **{name: given(i) if callable(given) else given for name, given in names.items()}}
        for i, value in enumerate(rewards)
    ]


def slime(rewards: list[float], batch: int) -> Iterator[dict[str, Any]]:
    for i, reward in enumerate(rewards):
        yield {"rollout/step": i, "rollout/raw_reward": reward, "rollout/rewards": 0.0}
        for j in range(batch):
            step = i * batch + j
            yield {"train/step": step, "train/grad_norm": 0.2, "train/lr-pg_0": 1e-6}


SHAPES: dict[str, dict[str, Any]] = {
    "areal": {
        "reward": "ppo_actor/task_reward/avg",
        "global_step": lambda i: i,
        "ppo_actor/update/lr": 1e-6,
        "ppo_actor/update/grad_norm": 0.2,
    },
    "tinker": {
        "reward": "env/all/reward/total",
        "step": lambda i: i,
        "progress/batch": lambda i: i,
        "optim/lr": 1e-6,
    },
    "skyrl": {
        "reward": "reward/avg_raw_reward",
        "trainer/global_step": lambda i: i + 1,
        "policy/policy_lr": 1e-6,
        "policy/grad_norm": 0.2,
    },
    "nemo-rl": {
        "reward": "train/reward",
        "step": lambda i: i + 1,
        "train/lr": 1e-6,
        "train/gen_kl_error": 1e-3,
    },
    "open-instruct": {
        "reward": "scores",
        "training_step": lambda i: i + 1,
        "global_step": lambda i: 64 * (i + 1),
        "lr": 1e-6,
    },
    "openrlhf": {
        "reward": "train/rollout/reward_mean",
        "train/global_step": lambda i: i + 1,
        "train/actor_lr": 1e-6,
        "train/actor_grad_norm": 0.2,
    },
    "pipelinerl": {
        "reward": "rl/reward",
        "stats/completed_steps": lambda i: i + 1,
        "stats/samples": lambda i: 512 * i,
        "stats/lr": 1e-6,
    },
    "titanrl": {
        "reward": "reward",
        "trainer/policy_version": lambda i: i + 1,
        "trainer/lr": 1e-6,
        "trainer/grad_norm/mean": 0.2,
    },
    "prime-rl": {
        "reward": "train/agg/effective/math/rewards/all/mean",
        "step": lambda i: i,
        "optim/lr": 1e-6,
        "optim/grad_norm": 0.1,
    },
    "roll": {
        "reward": "critic/rewards/mean",
        "step": lambda i: i,
        "actor/lr": 1e-6,
        "actor/ppo_ratio_clipfrac": 0.0,
    },
}


def near(found: JudgedLog, unit: int) -> bool:
    """Whether the onset lies within ten rows of the death."""
    onset = found.verdict.onset_updates
    return onset is not None and DEATH * unit <= onset[0] < onset[1] <= (DEATH + 10) * unit


@pytest.mark.parametrize("name", SHAPES)
def test_flat_rows(log: Log, course: Course, name: str) -> None:
    found = log(by_row(course(ROWS, dead_from=DEATH), **SHAPES[name]))
    assert (found.log.framework, found.verdict.updates) == (name, ROWS)
    assert near(found, 1)
    assert found.verdict.cumulative_lr_total == pytest.approx(ROWS * 1e-6)
    assert any(f"taken for one of {name}" in warning for warning in found.verdict.warnings)


@pytest.mark.parametrize("name", ["areal", "openrlhf", "tinker", "nemo-rl"])
def test_rows_of_four_updates(log: Log, course: Course, name: str) -> None:
    found = log(by_row(course(ROWS, dead_from=DEATH), **SHAPES[name]), framework=name, updates_per_row=4)
    assert found.verdict.updates == 4 * ROWS
    assert found.verdict.cumulative_lr_total == pytest.approx(4 * ROWS * 1e-6)
    assert near(found, 4)
    assert found.log.judge.sync_interval == 4  # weights are refreshed at every row


@pytest.mark.parametrize("name", ["areal", "openrlhf", "tinker", "skyrl", "open-instruct", "roll"])
def test_what_had_to_be_assumed_is_asked_for(log: Log, course: Course, name: str) -> None:
    found = log(by_row(course(ROWS), **SHAPES[name]))
    assert any("--updates-per-row" in warning for warning in found.verdict.warnings)


@pytest.mark.parametrize("name", ["prime-rl", "titanrl"])
def test_what_is_certain_is_not_asked_for(log: Log, course: Course, name: str) -> None:
    found = log(by_row(course(ROWS), **SHAPES[name]), framework=name)
    assert not any(
        "must be passed" in warning or "not known" in warning for warning in found.verdict.warnings
    )


@pytest.mark.parametrize(("passed", "batch"), [(None, 4), (1, 4), (4, 4), (2, 2)])
def test_two_axes_of_slime(log: Log, course: Course, passed: int | None, batch: int) -> None:
    rows = list(slime(course(ROWS, dead_from=DEATH), batch))
    found = log(rows, updates_per_row=passed, sync_interval=batch)
    assert (found.log.framework, found.log.reward_column) == ("slime", "rollout/raw_reward")
    assert found.verdict.updates == batch * ROWS
    assert found.verdict.cumulative_lr_total == pytest.approx(batch * ROWS * 1e-6)
    assert near(found, batch)


def test_slime_killed_within_a_batch(log: Log, course: Course) -> None:
    rows = list(slime(course(50), 4))[:-3]
    found = log(rows, sync_interval=4, horizon=200)
    assert found.verdict.updates == 200  # the rewards of the last batch are of its four updates
    assert any("rollout/step is 4" in warning for warning in found.verdict.warnings)


def test_slime_rollouts_alone(log: Log, course: Course) -> None:
    rows = [row for row in slime(course(ROWS, dead_from=DEATH), 4) if "rollout/step" in row]
    found = log(rows, updates_per_row=4, learning_rate=1e-6)
    assert found.verdict.updates == 4 * ROWS
    assert near(found, 4)


def test_prime_rl_writes_two_files_that_may_be_joined(log: Log, course: Course) -> None:
    trainer = [
        {"step": i, "optim/lr": 1e-6, "optim/grad_norm": 0.1, "mismatch_kl/all/mean": 1e-3}
        for i in range(ROWS)
    ]
    with pytest.raises(LogError, match="orchestrator"):
        log(trainer)
    rewards = course(ROWS, dead_from=DEATH)
    orchestrator = [
        {"step": i, "train/agg/effective/all/rewards/all/mean": reward, "off_policy/max": 2}
        for i, reward in enumerate(rewards)
    ]
    found = log(trainer + orchestrator)
    assert near(found, 1)
    assert found.verdict.cumulative_lr_total == pytest.approx(ROWS * 1e-6)
    assert (found.log.judge.sync_interval, found.max_lag) == (1, 2)


def trainer_state(rewards: list[float], every: int, **state: Any) -> str:
    history = [
        {
            "step": (i + 1) * every,
            "epoch": i / 50,
            "reward": reward,
            "rewards/format_reward/mean": 1.0,
            "learning_rate": 1e-6,
            "grad_norm": 0.2,
            "loss": 0.0,
        }
        for i, reward in enumerate(rewards)
    ]
    summary = {"step": len(rewards) * every, "train_runtime": 100.0, "train_loss": 1e-3}
    content = {"global_step": len(rewards) * every, "logging_steps": every, **state}
    return json.dumps({**content, "log_history": [*history, summary]}, indent=2)


@pytest.mark.parametrize("passed", [None, 1, 10])
def test_trl_rows_of_ten_steps(log: Log, course: Course, passed: int | None) -> None:
    found = log(
        trainer_state(course(60, dead_from=40), 10),
        name="trainer_state.json",
        updates_per_row=passed,
        sync_interval=1,
    )
    assert (found.log.framework, found.verdict.updates) == ("trl", 600)
    assert found.verdict.onset_updates is not None
    assert 400 <= found.verdict.onset_updates[0] < found.verdict.onset_updates[1] <= 460
    assert found.verdict.cumulative_lr_total == pytest.approx(600e-6)


def test_the_state_knows_how_long_the_run_was_to_be(log: Log, course: Course) -> None:
    found = log(trainer_state(course(30), 10, max_steps=600), name="trainer_state.json")
    assert found.verdict.verdict == "interrupted"
    finished = log(trainer_state(course(60), 10, max_steps=600), name="trainer_state.json")
    assert finished.verdict.verdict == "stable"


def test_a_torn_state_gives_the_rows_before(log: Log, course: Course) -> None:
    text = trainer_state(course(60), 1, max_steps=60)
    found = log(text[: len(text) // 2], name="trainer_state.json")
    assert 20 < found.verdict.updates < 40
    assert any("torn" in warning for warning in found.verdict.warnings)


def test_max_staleness_of_trl_is_passed_as_the_largest_lag(log: Log, course: Course) -> None:
    rewards = course(60, dead_from=40)
    found = log(trainer_state(rewards, 1), name="trainer_state.json", sync_interval=1, max_lag=4)
    assert found.run().effective_interval == 5


@pytest.mark.parametrize(
    "case",
    [
        ("skyrl", "async/staleness_max", 4, 1, 4),
        ("tinker", "async/staleness_max", 2, 4, 11),
        ("areal", "ppo_actor/update/version_stats/sample_staleness_theta_max", 1, 4, 7),
        ("prime-rl", "off_policy/max", 3, 1, 3),
    ],
    ids=lambda case: case[0],
)
def test_the_logs_own_staleness_in_updates(
    log: Log, course: Course, case: tuple[str, str, int, int, int]
) -> None:
    """k versions are at most (k + 1) S - 1 updates; what the lag is after the onset does not count."""
    name, column, staleness, unit, lag = case
    for until, counts in ((115, False), (140, True)):
        values = {column: lambda i, until=until: staleness if i < until else 50}
        found = log(
            by_row(course(ROWS, dead_from=DEATH), **SHAPES[name], **values),
            framework=name,
            updates_per_row=unit,
        )
        assert (found.max_lag == lag) == counts
