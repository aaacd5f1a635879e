"""The staleness-bias probe against a plain computation, what it must leave alone, and what a row says of masses."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from trainer.algorithms import ESTIMATORS
from trainer.config import EstimatorName, ProbeConfig, RunConfig, TaskConfig, TrainerConfig
from trainer.engines import make_engine
from trainer.loop.clock import Stopwatch
from trainer.loop.learner import Learner
from trainer.loop.logprobs import response_logprobs
from trainer.loop.mismatch import recompute_behaviour
from trainer.loop.rollouts import Rollouts
from trainer.loop.rows import ratio_statistics
from trainer.loop.sampling import draw_rollouts
from trainer.loop.staleness import staleness_bias
from trainer.loop.train import train
from trainer.metrics import FATAL, encode_row
from trainer.models import Policy, load_policy
from trainer.tasks import load_task

G, P = 4, 5


def trainer(estimator: EstimatorName = "none", **changes: Any) -> TrainerConfig:
    return TrainerConfig(
        estimator=estimator, **{"group_size": G, "prompts_per_update": P, "warmup": 2, **changes}
    )


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy(RunConfig().model, device="cpu")


@pytest.fixture(scope="module")
def fresh(policy: Policy) -> Rollouts:
    """Two updates' rollouts with mu of the policy itself."""
    run = RunConfig(trainer=trainer())
    engine = make_engine(policy, run)
    drawn = draw_rollouts(engine, load_task(run.task), policy, run, first=0, updates=2, clock=Stopwatch())
    return recompute_behaviour(policy, drawn, run.trainer)[0]


@pytest.fixture(scope="module")
def stale(fresh: Rollouts) -> Rollouts:
    """One batch whose mu belongs to another policy."""
    shift = torch.randn(fresh.behaviour.shape, generator=torch.Generator().manual_seed(1)) * 0.2
    return replace(fresh, behaviour=fresh.behaviour + shift.masked_fill(~fresh.mask, 0.0)).rows(0, G * P)


def score_vectors(policy: Policy, rollouts: Rollouts) -> tuple[list[Tensor], list[float]]:
    """grad log pi(tau_i) as one vector and r_i, trajectory by trajectory."""
    parameters, vectors, ratios = list(policy.model.parameters()), [], []
    for i in range(len(rollouts)):
        row = rollouts.rows(i, i + 1)
        log_pi = response_logprobs(policy.model, row, trainer())[row.mask]
        ratios.append(math.exp(float((log_pi.detach() - row.behaviour[row.mask]).sum())))
        vectors.append(torch.cat([g.flatten() for g in torch.autograd.grad(log_pi.sum(), parameters)]))
    return vectors, ratios


def plain_weights(estimator: str, ratios: list[float], epsilon: float) -> list[float]:
    masses = [sum(ratios[i - i % G : i - i % G + G]) / G for i in range(len(ratios))]
    return {
        "none": [1.0 for _ in ratios],
        "tic": [min(r, 1 + epsilon) for r in ratios],
        "tic_zero": [r if r <= 1 + epsilon else 0.0 for r in ratios],
        "gmc": [r * min(1.0, (1 + epsilon) / mass) for r, mass in zip(ratios, masses, strict=True)],
    }[estimator]


def plain_advantages(rewards: Tensor) -> list[float]:
    groups = rewards.double().view(-1, G)
    std = groups.std(dim=1, correction=0, keepdim=True)
    return ((groups - groups.mean(1, keepdim=True)) / std.where(std > 0, 1.0)).flatten().tolist()


@pytest.mark.parametrize("micro", [None, 2])
@pytest.mark.parametrize("estimator", ["none", "tic", "tic_zero", "gmc"])
def test_the_probe_equals_the_plain_definition(
    policy: Policy, stale: Rollouts, estimator: EstimatorName, micro: int | None
) -> None:
    rewards = (torch.arange(G * P) * 7 % 3).float()  # Signal in every group.
    stale = replace(stale, reward=rewards)
    found = staleness_bias(policy, stale, trainer(estimator, epsilon=0.02, micro_batch_groups=micro))
    vectors, ratios = score_vectors(policy, stale)
    omegas, advantages = plain_weights(estimator, ratios, 0.02), plain_advantages(rewards)
    tokens = float(stale.mask.sum())
    first, second = range(P // 2 * G), range(P // 2 * G, P * G)

    def half(weights: list[float], rows: range) -> Tensor:
        """The learner's gradient, estimated from these rows alone."""
        total = sum((weights[i] * advantages[i] * vectors[i].double() for i in rows), torch.zeros(()))
        return -total * G * P / len(rows) / tokens

    lost = [omega - r for omega, r in zip(omegas, ratios, strict=True)]
    assert found["bias_sq"] == pytest.approx(float(half(lost, first) @ half(lost, second)), rel=1e-3)
    assert found["full_grad_sq"] == pytest.approx(float(half(ratios, first) @ half(ratios, second)), rel=1e-3)


@pytest.mark.parametrize("micro", [None, 2])
@pytest.mark.parametrize("estimator", list(ESTIMATORS))
def test_without_staleness_the_bias_is_exactly_zero(
    policy: Policy, fresh: Rollouts, estimator: EstimatorName, micro: int | None
) -> None:
    own = trainer(estimator, micro_batch_groups=micro)
    batch = recompute_behaviour(policy, fresh, own)[0].rows(G * P, 2 * G * P)
    found = staleness_bias(policy, batch, own)
    assert found["bias_sq"] == 0.0
    assert found["full_grad_sq"] != 0.0


def test_the_probe_leaves_everything_as_it_was(policy: Policy, stale: Rollouts) -> None:
    learner = Learner(policy, trainer())
    before = [p.detach().clone() for p in learner.parameters]
    random = torch.get_rng_state()
    staleness_bias(policy, stale, trainer("gmc"))
    assert torch.equal(torch.get_rng_state(), random)
    assert all(p.grad is None for p in learner.parameters)
    assert all(torch.equal(now, old) for now, old in zip(learner.parameters, before, strict=True))


def run_config(every: int, **changes: Any) -> RunConfig:
    return RunConfig(
        trainer=trainer(**changes),
        probe=ProbeConfig(every=4, prompts=16, staleness_every=every),
        task=TaskConfig(held_out=16),
        sync_interval=4,
        learning_rate=1e-3,
        updates=9,
    )


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_run_with_the_probe_makes_the_same_updates(tmp_path: Path) -> None:
    for every in (0, 1, 3):
        train(run_config(every, behaviour_logprobs="learner"), tmp_path / str(every))
    probed, sparse = rows(tmp_path / "1"), rows(tmp_path / "3")
    assert [row["update"] for row in sparse if "bias_sq" in row] == [0, 3, 6]
    assert [row["bias_sq"] for row in sparse if "bias_sq" in row] == [probed[u]["bias_sq"] for u in (0, 3, 6)]
    # The sawtooth: nothing at each synchronization, something between.
    assert [row["update"] for row in probed if row["bias_sq"] == 0.0] == [0, 4, 8]
    bare = [{k: v for k, v in row.items() if k not in ("bias_sq", "full_grad_sq")} for row in probed]
    assert bare == rows(tmp_path / "0")


def test_one_prompt_has_no_halves() -> None:
    with pytest.raises(ValidationError, match="prompts_per_update = 1"):
        run_config(1, prompts_per_update=1)
    assert run_config(0, prompts_per_update=1).probe.staleness_every == 0


def test_an_overflowing_ratio_is_said_and_is_no_end(policy: Policy, stale: Rollouts) -> None:
    far = replace(stale, behaviour=stale.behaviour - 200.0, reward=(torch.arange(G * P) * 7 % 3).float())
    found = staleness_bias(policy, far, trainer("gmc"))
    assert json.loads(encode_row(found))["non_finite"] == ["bias_sq", "full_grad_sq"]
    assert not set(found) & set(FATAL)


def test_group_masses_and_sample_size_equal_plain_sums() -> None:
    logs = torch.randn(12, generator=torch.Generator().manual_seed(3))
    ratios = [math.exp(float(x)) for x in logs]
    masses = [sum(ratios[i : i + G]) / G for i in range(0, 12, G)]
    found = ratio_statistics(logs, G)
    assert found["group_mass_mean"] == pytest.approx(sum(masses) / 3, rel=1e-5)
    assert found["group_mass_max"] == pytest.approx(max(masses), rel=1e-5)
    assert found["ess"] == pytest.approx(sum(ratios) ** 2 / (12 * sum(r * r for r in ratios)), rel=1e-5)
    assert found["log_ratio_mean"] == pytest.approx(float(logs.mean()), rel=1e-5)
    assert found["log_ratio_abs_mean"] == pytest.approx(float(logs.abs().mean()), rel=1e-5)
    assert found["log_ratio_max"] == float(logs.max())


def test_cosine_is_that_of_consecutive_gradients_before_clipping(stale: Rollouts) -> None:
    own = trainer(grad_clip=1e-3)
    learner = Learner(load_policy(RunConfig().model, device="cpu"), own)
    flipped = replace(stale, reward=-stale.reward)
    assert learner.update(stale, 0.0).grad_cosine is None
    assert learner.update(flipped, 0.0).grad_cosine == pytest.approx(-1.0, abs=1e-5)
    assert learner.update(flipped, 0.0).grad_cosine == pytest.approx(1.0, abs=1e-5)
    other = replace(stale, reward=(torch.arange(G * P) * 7 % 3).float())
    cosine = learner.update(other, 0.0).grad_cosine
    assert cosine is not None
    vectors, _ = score_vectors(learner.policy, stale)
    grads = [
        sum((a * v for a, v in zip(plain_advantages(batch.reward), vectors, strict=True)), torch.zeros(()))
        for batch in (flipped, other)
    ]
    assert cosine == pytest.approx(float(grads[0] @ grads[1] / (grads[0].norm() * grads[1].norm())), abs=1e-3)
