"""Estimators against a plain definition in float64, and the invariants of the weights."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from trainer.algorithms import ESTIMATORS, RatioBatch
from trainer.algorithms.advantages import group_normalised
from trainer.config import TrainerConfig
from trainer.names import EstimatorName

N, T, G, V = 12, 5, 4, 7


class Case:
    """A tiny policy, softmax of free logits at every position, and trajectories of an older one."""

    def __init__(self, seed: int, drift: float = 0.3) -> None:
        make = torch.Generator().manual_seed(seed)
        self.logits = torch.randn(N, T, V, generator=make, dtype=torch.float64).requires_grad_()
        self.tokens = torch.randint(0, V, (N, T), generator=make)
        lengths = torch.randint(1, T + 1, (N, 1), generator=make)
        self.mask = torch.arange(T) < lengths
        shift = torch.randn(N, T, generator=make, dtype=torch.float64)
        self.behaviour = (self.logprobs() + drift * shift).detach()
        self.rewards = torch.randint(0, 2, (N,), generator=make).double()
        self.advantages = group_normalised(self.rewards, G)

    def logprobs(self) -> Tensor:
        return torch.log_softmax(self.logits, -1).gather(-1, self.tokens.unsqueeze(-1)).squeeze(-1)

    def batch(self, logprobs: Tensor) -> RatioBatch:
        return RatioBatch(logprobs, self.behaviour, self.mask, self.advantages, G)


def plain_weight(name: str, ratios: list[float], i: int, epsilon: float) -> float:
    """omega_i as the design states it, with plain exponentials and sums."""
    group = ratios[i - i % G : i - i % G + G]
    return {
        "none": 1.0,
        "tic": min(ratios[i], 1 + epsilon),
        "tic_zero": ratios[i] if ratios[i] <= 1 + epsilon else 0.0,
        "gmc": ratios[i] * min(1.0, (1 + epsilon) * G / sum(group)),
    }[name]


def plain_gradient(case: Case, name: str, epsilon: float) -> Tensor:
    """sum_i omega_i A_i grad log pi(tau_i), trajectory by trajectory through autograd."""
    total = torch.zeros_like(case.logits)
    with torch.no_grad():
        now = case.logprobs()
        ratios = [math.exp(float((now[i] - case.behaviour[i])[case.mask[i]].sum())) for i in range(N)]
    for i in range(N):
        log_pi = case.logprobs()[i][case.mask[i]].sum()
        (gradient,) = torch.autograd.grad(log_pi, case.logits)
        total += plain_weight(name, ratios, i, epsilon) * case.advantages[i] * gradient
    return total


def plain_ppo_gradient(case: Case, low: float, high: float) -> Tensor:
    """PPO clip, token by token: the gradient is rho A grad log pi where the clip does not bind, else 0."""
    total = torch.zeros_like(case.logits)
    now = case.logprobs().detach()
    for i, t in itertools.product(range(N), range(T)):
        if not case.mask[i, t]:
            continue
        rho, advantage = math.exp(float(now[i, t] - case.behaviour[i, t])), float(case.advantages[i])
        clipped = (advantage > 0 and rho > 1 + high) or (advantage < 0 and rho < 1 - low)
        (gradient,) = torch.autograd.grad(case.logprobs()[i, t], case.logits)
        total += 0.0 if clipped else rho * advantage * gradient
    return total


def estimator_gradient(case: Case, name: EstimatorName, config: TrainerConfig) -> Tensor:
    objective = ESTIMATORS[name](case.batch(case.logprobs()), config).objective
    (gradient,) = torch.autograd.grad(objective, case.logits)
    return gradient


def relative_error(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", ["none", "tic", "tic_zero", "gmc"])
def test_gradient_equals_the_plain_definition(name: EstimatorName, seed: int) -> None:
    case = Case(seed)
    found = estimator_gradient(case, name, TrainerConfig(epsilon=0.1))
    assert relative_error(found, plain_gradient(case, name, 0.1)) < 1e-10


@pytest.mark.parametrize("seed", range(5))
def test_grpo_gradient_equals_the_plain_definition(seed: int) -> None:
    case = Case(seed)
    found = estimator_gradient(case, "grpo", TrainerConfig(clip_low=0.1, clip_high=0.3))
    assert relative_error(found, plain_ppo_gradient(case, 0.1, 0.3)) < 1e-10


def test_without_staleness_none_tic_and_gmc_are_identical() -> None:
    case = Case(0, drift=0.0)
    gradients = [estimator_gradient(case, name, TrainerConfig()) for name in ("none", "tic", "gmc")]
    assert relative_error(gradients[1], gradients[0]) < 1e-12
    assert relative_error(gradients[2], gradients[0]) < 1e-12


def weights(log_ratios: Tensor, name: EstimatorName, epsilon: float) -> Tensor:
    """omega of one group, read off an estimator through log pi alone: A = 1, one token a trajectory."""
    logprobs = log_ratios.clone().requires_grad_()
    size = len(log_ratios)
    ones = torch.ones(size, dtype=log_ratios.dtype)
    mask = torch.ones(size, 1, dtype=torch.bool)
    batch = RatioBatch(logprobs.unsqueeze(-1), torch.zeros(size, 1, dtype=log_ratios.dtype), mask, ones, size)
    (omega,) = torch.autograd.grad(
        ESTIMATORS[name](batch, TrainerConfig(epsilon=epsilon)).objective, logprobs
    )
    return omega


RATIOS = st.lists(st.floats(-4, 4), min_size=2, max_size=9)
EPSILON = st.floats(0.01, 4)


@given(ratios=RATIOS, epsilon=EPSILON)
@settings(deadline=None)
def test_gmc_keeps_the_direction_and_caps_the_mass(ratios: list[float], epsilon: float) -> None:
    log_ratios = torch.tensor(ratios, dtype=torch.float64)
    omega = weights(log_ratios, "gmc", epsilon)
    shrink = omega / log_ratios.exp()
    assert torch.allclose(shrink, shrink[0].expand_as(shrink), rtol=1e-12)
    assert float(shrink[0]) <= 1 + 1e-12
    assert float(omega.sum()) <= (1 + epsilon) * len(ratios) * (1 + 1e-12)


@given(ratios=RATIOS, epsilon=EPSILON)
@settings(deadline=None)
def test_tic_turns_the_direction_only_where_a_cap_acts(ratios: list[float], epsilon: float) -> None:
    log_ratios = torch.tensor(ratios, dtype=torch.float64)
    omega = weights(log_ratios, "tic", epsilon)
    assert bool((omega <= (1 + epsilon) * (1 + 1e-12)).all())
    below = log_ratios <= math.log1p(epsilon)
    assert torch.allclose(omega[below], log_ratios.exp()[below], rtol=1e-12)


@given(case=st.integers(0, 50), extra=st.floats(-700, 700))
@settings(deadline=None, max_examples=30)
def test_masked_tokens_never_count(case: int, extra: float) -> None:
    made = Case(case)
    now = made.logprobs().detach()
    poisoned = now.masked_fill(~made.mask, extra)
    for name in ("none", "tic", "tic_zero", "gmc", "grpo"):
        estimate = ESTIMATORS[name]  # type: ignore[index]
        clean = estimate(made.batch(now), TrainerConfig())
        dirty = estimate(made.batch(poisoned), TrainerConfig())
        assert float(clean.objective) == float(dirty.objective)


@pytest.mark.parametrize("name", ["none", "tic", "tic_zero", "gmc"])
def test_extreme_ratios_stay_finite(name: EstimatorName) -> None:
    omega = weights(torch.tensor([900.0, -900.0, 0.0], dtype=torch.float64), name, 0.2)
    assert bool(torch.isfinite(omega).all())


def lost_mass(probabilities: Tensor, ratios: Tensor, name: EstimatorName, size: int, epsilon: float) -> float:
    """E[sum_i (r_i - omega_i)] / G over all groups of `size` draws from a small support, exactly."""
    total = 0.0
    for draw in itertools.product(range(len(ratios)), repeat=size):
        index = torch.tensor(draw)
        chance = float(probabilities[index].prod())
        group = ratios[index]
        omega = weights(group.log(), name, epsilon)
        total += chance * float((group - omega).sum()) / size
    return total


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("epsilon", [0.1, 0.5])
def test_expected_lost_mass_is_ordered_and_only_that_of_gmc_falls_with_g(seed: int, epsilon: float) -> None:
    make = torch.Generator().manual_seed(seed)
    behaviour = torch.softmax(torch.randn(4, generator=make, dtype=torch.float64), 0)
    learner = torch.softmax(torch.randn(4, generator=make, dtype=torch.float64), 0)
    ratios = learner / behaviour
    lost = {
        (name, size): lost_mass(behaviour, ratios, name, size, epsilon)
        for name in ("gmc", "tic", "tic_zero")
        for size in (2, 3, 4)
    }
    for size in (2, 3, 4):
        assert lost["gmc", size] <= lost["tic", size] + 1e-12
        assert lost["tic", size] <= lost["tic_zero", size] + 1e-12
    assert lost["gmc", 2] > lost["gmc", 3] > lost["gmc", 4]
    assert lost["tic", 2] == pytest.approx(lost["tic", 4], rel=1e-9)


def test_advantages_have_zero_mean_and_unit_spread_or_vanish() -> None:
    rewards = torch.tensor([1.0, 0, 0, 0, 0.3, 0.3, 0.3, 0.3, 5.0, 1, 3, 3])
    advantages = group_normalised(rewards, 4).view(-1, 4)
    assert torch.allclose(advantages.mean(-1), torch.zeros(3), atol=1e-6)
    assert torch.allclose(advantages.square().mean(-1), torch.tensor([1.0, 0.0, 1.0]), atol=1e-6)
    assert bool((advantages[1] == 0).all())
