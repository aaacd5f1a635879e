"""Advantages and aggregation against their definitions; the defaults are what they were before there were others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from trainer.algorithms import ESTIMATORS, RatioBatch
from trainer.algorithms.advantages import group_advantages
from trainer.algorithms.aggregation import aggregated
from trainer.config import ModelConfig, TrainerConfig
from trainer.engines.hf import HfEngine
from trainer.loop.learner import Learner
from trainer.loop.logprobs import response_logprobs
from trainer.loop.rollouts import Rollouts
from trainer.loop.staleness import staleness_bias
from trainer.models import load_policy
from trainer.names import EstimatorName
from trainer.tasks import RunningSum

G, P = 4, 3
AGGREGATIONS = ("token-mean", "sequence-mean", "constant")
LIMIT = 9


def trainer(**changes: Any) -> TrainerConfig:
    return TrainerConfig(group_size=G, prompts_per_update=P, response_limit=LIMIT, **changes)


def tiny_batch(seed: int, advantages: Tensor | None = None) -> RatioBatch:
    """Free logprobs of trajectories of different lengths, a little stale."""
    make = torch.Generator().manual_seed(seed)
    logprobs = -torch.rand(P * G, 6, generator=make, dtype=torch.float64)
    behaviour = logprobs + 0.2 * torch.randn(P * G, 6, generator=make, dtype=torch.float64)
    mask = torch.arange(6) < torch.randint(1, 7, (P * G, 1), generator=make)
    drawn = torch.randn(P * G, generator=make, dtype=torch.float64)
    return RatioBatch(
        logprobs.requires_grad_(), behaviour, mask, drawn if advantages is None else advantages, G
    )


def gradient(batch: RatioBatch, config: TrainerConfig) -> Tensor:
    objective = ESTIMATORS[config.estimator](batch, config).objective
    (found,) = torch.autograd.grad(objective, batch.logprobs)
    return found


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_trajectory_counts_as_the_aggregation_says(estimator: EstimatorName, aggregation: str) -> None:
    """Gradients of the trajectories one by one, summed with the factors that the definition gives them."""
    config = trainer(estimator=estimator, aggregation=aggregation, epsilon=0.05)
    batch = tiny_batch(0)
    lengths = batch.mask.sum(-1)
    factors = {
        "token-mean": torch.full((P * G,), 1 / int(lengths.sum()), dtype=torch.float64),
        "sequence-mean": 1 / (P * G * lengths.double()),
        "constant": torch.full((P * G,), 1 / (P * G * LIMIT), dtype=torch.float64),
    }[aggregation]
    wanted = sum(
        factor * gradient(replace(batch, advantages=batch.advantages * (torch.arange(P * G) == i)), config)
        for i, factor in enumerate(factors)
    )
    advantages, divisor = aggregated(batch.advantages, batch.mask, config)
    found = gradient(replace(batch, advantages=advantages), config) / divisor
    assert torch.allclose(found, wanted, rtol=1e-10, atol=1e-15)


@given(seed=st.integers(0, 100), length=st.integers(1, 6))
@settings(deadline=None, max_examples=20)
def test_aggregations_differ_only_where_lengths_do(seed: int, length: int) -> None:
    batch = tiny_batch(seed)
    mask = (torch.arange(6) < length).expand(P * G, 6)
    for aggregation in AGGREGATIONS:
        advantages, divisor = aggregated(batch.advantages, mask, trainer(aggregation=aggregation))
        scale = LIMIT / length if aggregation == "constant" else 1.0
        wanted = batch.advantages / (P * G * length)
        assert torch.allclose(scale * advantages / divisor, wanted, rtol=1e-12)


def test_centred_advantages_by_hand() -> None:
    nan = float("nan")
    rewards = torch.tensor([1.0, 0, 0, 0, 0.3, 0.3, 0.3, 0.3, nan, 1, 3, nan, nan, nan, nan, nan])
    found = group_advantages(rewards, trainer(advantage="centred"))
    wanted = [0.75, -0.25, -0.25, -0.25, 0, 0, 0, 0, 0, -1, 1, 0, 0, 0, 0, 0]
    assert torch.allclose(found, torch.tensor(wanted), atol=1e-7)
    assert bool((found[4:8] == 0).all())  # no dust of rounding


@given(st.lists(st.floats(-100, 100, width=32), min_size=G, max_size=G))
@settings(deadline=None)
def test_standardised_is_centred_over_the_spread(rewards: list[float]) -> None:
    values = torch.tensor(rewards, dtype=torch.float64)
    centred = group_advantages(values, trainer(advantage="centred"))
    standardised = group_advantages(values, trainer())
    assert torch.allclose(standardised * values.std(correction=0), centred, atol=1e-9)
    assert float(centred.sum()) == pytest.approx(0, abs=1e-9)


def former_advantages(rewards: Tensor) -> Tensor:
    """group_normalised as it was when it was the only one, operation by operation."""
    grouped = rewards.view(-1, G)
    scored = ~grouped.isnan()
    centred = (grouped - grouped.nanmean(dim=-1, keepdim=True)).masked_fill(~scored, 0.0)
    std = (centred.square().sum(dim=-1, keepdim=True) / scored.sum(dim=-1, keepdim=True)).sqrt()
    flat = ~(
        grouped.masked_fill(~scored, -torch.inf).amax(-1, keepdim=True)
        > grouped.masked_fill(~scored, torch.inf).amin(-1, keepdim=True)
    )
    return (centred / std.masked_fill(flat, 1.0)).masked_fill(flat, 0.0).flatten()


@pytest.mark.parametrize("seed", range(20))
def test_default_advantages_are_the_same_bits_as_before(seed: int) -> None:
    make = torch.Generator().manual_seed(seed)
    rewards = torch.randint(0, 3, (40 * G,), generator=make) / 3 + seed
    unscored = torch.rand(40 * G, generator=make) < 0.2
    rewards = rewards.masked_fill(unscored, torch.nan)
    assert torch.equal(group_advantages(rewards, trainer()), former_advantages(rewards))


@pytest.fixture(scope="module")
def stale() -> Rollouts:
    """A batch of the embedded policy, some responses cut short, with mu of another policy."""
    policy = load_policy(ModelConfig(), device="cpu")
    engine = HfEngine(policy, response_limit=LIMIT, temperature=1.0, dtype="float32")
    prompts = [example.prompt for example in RunningSum().prompts(np.random.default_rng(0), P)]
    drawn = engine.generate(prompts, samples=G, seed=0)
    make = torch.Generator().manual_seed(0)
    mask = drawn.mask & (torch.arange(LIMIT) < torch.randint(2, LIMIT + 1, (P * G, 1), generator=make))
    behaviour = drawn.behaviour + 0.2 * torch.randn(mask.shape, generator=make)
    rewards = (torch.arange(P * G) * 7 % 3).float()
    return replace(drawn, mask=mask, behaviour=behaviour.masked_fill(~mask, 0.0), reward=rewards)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_default_update_is_the_same_bits_as_before(stale: Rollouts, estimator: EstimatorName) -> None:
    """The loss as it was: minus the objective over all response tokens, with standardised advantages."""
    config = trainer(estimator=estimator)
    policy = load_policy(ModelConfig(), device="cpu")
    logprobs = response_logprobs(policy.model, stale, config)
    batch = RatioBatch(logprobs, stale.behaviour, stale.mask, former_advantages(stale.reward), G)
    loss = -ESTIMATORS[estimator](batch, config).objective / int(stale.mask.sum())
    loss.backward()
    wanted = torch.cat([p.grad.flatten() for p in policy.model.parameters() if p.grad is not None])
    learner = Learner(load_policy(ModelConfig(), device="cpu"), config)
    step = learner.update(stale, 0.0)
    assert learner.previous_gradient is not None
    assert step.loss == float(loss.detach())
    assert torch.equal(learner.previous_gradient, wanted)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_micro_batches_aggregate_like_one_batch(stale: Rollouts, aggregation: str) -> None:
    found = []
    for groups in (None, 1, 2):
        config = trainer(aggregation=aggregation, advantage="centred", micro_batch_groups=groups)
        learner = Learner(load_policy(ModelConfig(), device="cpu"), config)
        learner.update(stale, 0.0)
        found.append(learner.previous_gradient)
    for parts in found[1:]:
        assert float((parts - found[0]).abs().max()) < 1e-6 * float(found[0].norm())  # float32 sums


def test_the_bias_probe_has_the_loss_of_the_learner(stale: Rollouts) -> None:
    """Another divisor alone scales the squared bias by its square."""
    policy = load_policy(ModelConfig(), device="cpu")
    by_tokens, by_constant = (
        staleness_bias(policy, stale, trainer(estimator="tic", epsilon=0.02, aggregation=name))
        for name in ("token-mean", "constant")
    )
    share = int(stale.mask.sum()) / (P * G * LIMIT)
    assert share < 0.9
    assert by_constant["bias_sq"] == pytest.approx(by_tokens["bias_sq"] * share**2, rel=1e-4)
    assert by_constant["full_grad_sq"] == pytest.approx(by_tokens["full_grad_sq"] * share**2, rel=1e-4)
