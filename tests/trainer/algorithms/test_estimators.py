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
from trainer.config import Thresholds, TrainerConfig
from trainer.names import EstimatorName

N, T, G, V = 12, 5, 4, 7
TIGHT = Thresholds(
    gspo_low=0.05, gspo_high=0.08, cispo_low=0.3, cispo_high=0.2, tis_high=0.1, mis_low=0.3, mis_high=0.4
)
"""Thresholds between the ratios of a case, so that every cap acts on some of them and not on others."""


BASELINES: tuple[EstimatorName, ...] = ("gspo", "cispo", "tis", "mis")


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


def as_published(name: str, logprobs: Tensor, behaviour: Tensor, advantage: Tensor) -> Tensor:
    """One trajectory's term [T] -> [] in the words of the source, differentiated by autograd as it stands."""
    rho = (logprobs - behaviour).exp()
    if name == "gspo":
        s = rho.prod() ** (1 / len(rho))
        clipped = s.clamp(1 - TIGHT.gspo_low, 1 + TIGHT.gspo_high)
        return len(rho) * torch.minimum(s * advantage, clipped * advantage)
    weights = {
        "cispo": rho.clamp(1 - TIGHT.cispo_low, 1 + TIGHT.cispo_high),
        "tis": rho.clamp(max=1 + TIGHT.tis_high),
        "mis": torch.where((rho >= 1 - TIGHT.mis_low) & (rho <= 1 + TIGHT.mis_high), rho, 0.0),
    }[name]
    return (weights.detach() * advantage * logprobs).sum()


def published_gradient(case: Case, name: str) -> Tensor:
    """Gradient of the sum over trajectories, tokens outside the mask cut off."""
    now = case.logprobs()
    terms = [
        as_published(name, now[i][case.mask[i]], case.behaviour[i][case.mask[i]], case.advantages[i])
        for i in range(N)
    ]
    (gradient,) = torch.autograd.grad(torch.stack(terms).sum(), case.logits)
    return gradient


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


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", BASELINES)
def test_gradients_of_the_baselines_equal_what_their_sources_say(name: EstimatorName, seed: int) -> None:
    case = Case(seed)
    config = TrainerConfig(thresholds=TIGHT)
    assert relative_error(estimator_gradient(case, name, config), published_gradient(case, name)) < 1e-10
    acts = ESTIMATORS[name](case.batch(case.logprobs()), config).activation
    assert 0 < float(acts) < 1  # or this would be a test of plain importance weights


@pytest.mark.parametrize("name", ESTIMATORS)
def test_without_staleness_all_estimators_are_identical(name: EstimatorName) -> None:
    case = Case(0, drift=0.0)
    plain = estimator_gradient(case, "none", TrainerConfig())
    assert relative_error(estimator_gradient(case, name, TrainerConfig()), plain) < 1e-12
    assert float(ESTIMATORS[name](case.batch(case.logprobs()), TrainerConfig()).activation) == 0.0


def weights(
    log_ratios: Tensor,
    name: EstimatorName,
    epsilon: float,
    thresholds: Thresholds = TIGHT,
    sign: float = 1.0,
) -> Tensor:
    """omega of one group, read off an estimator through log pi alone: A = `sign`, one token a trajectory."""
    logprobs = log_ratios.clone().requires_grad_()
    size = len(log_ratios)
    advantages = torch.full((size,), sign, dtype=log_ratios.dtype)
    mask = torch.ones(size, 1, dtype=torch.bool)
    behaviour = torch.zeros(size, 1, dtype=log_ratios.dtype)
    batch = RatioBatch(logprobs.unsqueeze(-1), behaviour, mask, advantages, size)
    config = TrainerConfig(epsilon=epsilon, thresholds=thresholds)
    (omega,) = torch.autograd.grad(ESTIMATORS[name](batch, config).objective, logprobs)
    return sign * omega


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


LOG_RATIOS = st.lists(st.floats(-6, 6), min_size=2, max_size=9).map(lambda x: torch.tensor(x).double())


@given(log_ratios=LOG_RATIOS, low=st.floats(0.01, 1), high=st.floats(0.01, 5))
@settings(deadline=None)
def test_weights_of_tokens_stay_where_the_thresholds_say(log_ratios: Tensor, low: float, high: float) -> None:
    """One token a trajectory, so that its weight is the trajectory's."""
    limits = Thresholds(cispo_low=low, cispo_high=high, tis_high=high, mis_low=low, mis_high=high)
    cispo, tis, mis = (weights(log_ratios, name, 0.2, limits) for name in ("cispo", "tis", "mis"))
    ratios, slack = log_ratios.exp(), 1e-12
    inside = (ratios >= 1 - low) & (ratios <= 1 + high)
    for omega in (cispo, tis, mis):
        assert torch.allclose(omega[inside], ratios[inside], rtol=1e-12)
        assert bool((omega <= (1 + high) * (1 + slack)).all())
    assert bool((cispo >= (1 - low) * (1 - slack)).all())
    assert bool((tis <= ratios * (1 + slack)).all())
    outside = (ratios < (1 - low) * (1 - slack)) | (ratios > (1 + high) * (1 + slack))
    assert bool((mis[outside] == 0).all())


@given(case=st.integers(0, 50), cap=st.floats(0.01, 5))
@settings(deadline=None, max_examples=30)
def test_cispo_without_a_lower_limit_is_tis_with_the_same_cap(case: int, cap: float) -> None:
    config = TrainerConfig(thresholds=Thresholds(cispo_low=1.0, cispo_high=cap, tis_high=cap))
    gradients = [estimator_gradient(Case(case), name, config) for name in ("cispo", "tis")]
    assert torch.equal(*gradients)


@given(drift=st.floats(-0.2, 0.2), lengths=st.tuples(st.integers(1, 6), st.integers(1, 6)))
@settings(deadline=None)
def test_gspo_does_not_see_the_length_of_a_trajectory(drift: float, lengths: tuple[int, int]) -> None:
    """All tokens have drifted alike: the weight of each is the same in a short and a long trajectory."""
    mask = torch.arange(6) < torch.tensor(lengths).unsqueeze(-1)
    logprobs = torch.full((2, 6), drift, dtype=torch.float64, requires_grad=True)
    ones = torch.ones(2, dtype=torch.float64)
    batch = RatioBatch(logprobs, torch.zeros(2, 6, dtype=torch.float64), mask, ones, 2)
    wide = TrainerConfig(thresholds=Thresholds(gspo_low=0.9, gspo_high=9.0))
    (omega,) = torch.autograd.grad(ESTIMATORS["gspo"](batch, wide).objective, logprobs)
    assert torch.allclose(omega[mask], torch.tensor(drift, dtype=torch.float64).exp(), rtol=1e-12)
    assert bool((omega[~mask] == 0).all())


@given(case=st.integers(0, 50), extra=st.sampled_from([math.nan, math.inf, -math.inf, 700.0, -700.0]))
@settings(deadline=None, max_examples=30)
def test_masked_tokens_never_count(case: int, extra: float) -> None:
    made = Case(case)
    now = made.logprobs().detach()
    for name, estimate in ESTIMATORS.items():
        found = []
        for values in (now, now.masked_fill(~made.mask, extra)):
            logprobs = values.clone().requires_grad_()
            surrogate = estimate(made.batch(logprobs), TrainerConfig(thresholds=TIGHT))
            (gradient,) = torch.autograd.grad(surrogate.objective, logprobs)
            found.append((gradient, surrogate.objective.detach(), surrogate.activation))
        for clean, dirty in zip(*found, strict=True):
            assert torch.equal(clean, dirty), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_extreme_ratios_stay_finite(name: EstimatorName, sign: float, dtype: torch.dtype) -> None:
    """Where A < 0 the sources of `grpo` and `gspo` limit no ratio, so it is kept from overflowing."""
    log_ratios = torch.tensor([900.0, -900.0, 80.0, 0.0], dtype=dtype)
    omega = weights(log_ratios, name, 0.2, sign=sign)
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
