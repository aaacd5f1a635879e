"""Sampling with a key-value cache against a full forward, with and without padding."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM

from trainer.config import ModelConfig, TrainerConfig
from trainer.engines.hf import HfEngine, sample_token
from trainer.errors import NonFiniteError
from trainer.loop.logprobs import response_logprobs
from trainer.models import Policy, load_policy
from trainer.tasks import RunningSum


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy(ModelConfig(), device="cpu")


def engine(policy: Policy, *, temperature: float = 1.0, limit: int = 9) -> HfEngine:
    return HfEngine(policy, response_limit=limit, temperature=temperature, dtype="float32")


def prompts(n: int) -> list[str]:
    return [example.prompt for example in RunningSum().prompts(np.random.default_rng(0), n)]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("ragged", [False, True])
def test_cached_logprobs_equal_a_full_forward(policy: Policy, *, ragged: bool, temperature: float) -> None:
    asked = prompts(16)
    if ragged:
        asked = [prompt[i % 5 :] for i, prompt in enumerate(asked)]
    rollouts = engine(policy, temperature=temperature).generate(asked, samples=4, seed=1)
    with torch.no_grad():
        full = response_logprobs(policy.model, rollouts, TrainerConfig(temperature=temperature))
    gap = (full - rollouts.behaviour).masked_fill(~rollouts.mask, 0.0).abs()
    # Cut prompts are not what the policy was made for: there even the full forward is 1e-5 from float64.
    assert float(gap.max()) < (3e-5 if ragged else 1e-5)


def test_padding_changes_no_logprob(policy: Policy) -> None:
    """The same response scored alone and beside a longer prompt."""
    alone = engine(policy).generate(["123="], samples=2, seed=3)
    beside = engine(policy).generate(["123=", "12345678="], samples=2, seed=3)
    joined = beside.rows(0, 2)
    with torch.no_grad():
        own = response_logprobs(policy.model, alone, TrainerConfig())
        mixed = response_logprobs(
            policy.model,
            type(joined)(**{**vars(joined), "response": alone.response, "mask": alone.mask}),
            TrainerConfig(),
        )
    assert torch.allclose(own[alone.mask], mixed[alone.mask], atol=1e-5)


def test_same_seed_same_rollouts_and_other_seed_others(policy: Policy) -> None:
    first = engine(policy).generate(prompts(8), samples=4, seed=5)
    again = engine(policy).generate(prompts(8), samples=4, seed=5)
    other = engine(policy).generate(prompts(8), samples=4, seed=6)
    assert torch.equal(first.response, again.response)
    assert torch.equal(first.behaviour, again.behaviour)
    assert not torch.equal(first.response, other.response)


def test_nothing_follows_the_end_token(policy: Policy) -> None:
    rollouts = engine(policy, limit=12).generate(prompts(32), samples=4, seed=0)
    ended = (rollouts.response == policy.eos).cumsum(-1)
    after = (ended - (rollouts.response == policy.eos).int()) > 0
    assert not bool((rollouts.mask & after).any())
    assert bool((rollouts.behaviour[~rollouts.mask] == 0).all())
    assert torch.equal(rollouts.truncated(policy.eos), ended[:, -1] == 0)


def test_weights_are_a_copy_until_they_are_updated(policy: Policy) -> None:
    learner = load_policy(ModelConfig(), device="cpu")
    sampler = engine(learner)
    before = sampler.generate(prompts(4), samples=2, seed=0).behaviour
    with torch.no_grad():
        for parameter in learner.model.parameters():
            parameter.mul_(0.9)
    assert torch.equal(before, sampler.generate(prompts(4), samples=2, seed=0).behaviour)
    sampler.update_weights(dict(learner.model.named_parameters()), 7)
    after = sampler.generate(prompts(4), samples=2, seed=0)
    assert not torch.equal(before, after.behaviour)
    assert bool((after.version[after.mask] == 7).all())


@pytest.mark.parametrize("ragged", [False, True])
def test_responses_go_on_with_weights_that_arrive_in_flight(policy: Policy, *, ragged: bool) -> None:
    """Each token's logprob is that of the weights whose version it carries, with no trace of the old cache."""
    newer = load_policy(ModelConfig(), device="cpu")
    with torch.no_grad():
        for parameter in newer.model.parameters():
            parameter.mul_(0.9)
    asked = [prompt[i % 5 if ragged else 0 :] for i, prompt in enumerate(prompts(8))]
    pushes = iter([None, None, (dict(newer.model.named_parameters()), 4)])
    rollouts = engine(policy).generate(asked, samples=4, seed=1, refresh=lambda: next(pushes, None))
    assert [
        row[mask].unique().tolist() for row, mask in zip(rollouts.version.T, rollouts.mask.T, strict=True)
    ] == [
        *[[0]] * 3,
        *[[4]] * 6,
    ]
    assert bool((rollouts.oldest_version == 0).all())
    with torch.no_grad():
        by_version = {0: policy.model, 4: newer.model}
        for version, model in by_version.items():
            full = response_logprobs(model, rollouts, TrainerConfig())
            own = (rollouts.version == version) & rollouts.mask
            assert float((full - rollouts.behaviour)[own].abs().max()) < (3e-5 if ragged else 1e-5)
            assert float((full - rollouts.behaviour)[~own & rollouts.mask].abs().max()) > 0.1


class CountCasts(TorchDispatchMode):
    """How often a tensor was cast to bfloat16, by its address."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[int] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._to_copy.default and (kwargs or {}).get("dtype") is torch.bfloat16:
            self.count[args[0].data_ptr()] += 1
        return func(*args, **(kwargs or {}))

    def of(self, model: Any) -> list[int]:
        """Of the weights of each linear layer."""
        layers = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
        return [self.count[layer.weight.data_ptr()] for layer in layers]


@pytest.fixture(params=["untied", "tied"])
def either(request: pytest.FixtureRequest) -> Policy:
    """The policy that ships, and a random one whose output head is its embedding."""
    policy = load_policy(ModelConfig(), device="cpu")
    if request.param == "tied":
        shape = copy.deepcopy(policy.model.config)
        shape.update({"tie_word_embeddings": True})
        torch.manual_seed(0)
        policy.model = AutoModelForCausalLM.from_config(shape).float().eval()
    return policy


@pytest.mark.parametrize("share", [False, True])
def test_bfloat16_casts_every_weight_once_and_samples_the_same_bits(either: Policy, *, share: bool) -> None:
    sampler = HfEngine(either, response_limit=9, temperature=1.0, dtype="bfloat16", share_weights=share)
    with CountCasts() as casts:
        kept = sampler.generate(prompts(8), samples=4, seed=5)
    assert set(casts.of(sampler._model)) == {1}
    torch.set_autocast_cache_enabled(False)
    try:
        with CountCasts() as casts:
            anew = sampler.generate(prompts(8), samples=4, seed=5)
    finally:
        torch.set_autocast_cache_enabled(True)
    assert set(casts.of(sampler._model)) == {9}
    assert torch.equal(kept.response, anew.response)
    assert torch.equal(kept.behaviour, anew.behaviour)


def test_bfloat16_weights_that_arrive_in_flight_are_cast_too(policy: Policy) -> None:
    newer = load_policy(ModelConfig(), device="cpu")
    with torch.no_grad():
        for parameter in newer.model.parameters():
            parameter.mul_(0.9)
    sampler = HfEngine(policy, response_limit=9, temperature=1.0, dtype="bfloat16")
    pushes = iter([None, None, (dict(newer.model.named_parameters()), 4)])
    with CountCasts() as casts:
        rollouts = sampler.generate(prompts(8), samples=4, seed=1, refresh=lambda: next(pushes, None))
    assert set(casts.of(sampler._model)) == {2}
    own = (rollouts.version == 4) & rollouts.mask
    gap = {}
    for name, model in {"old": policy.model, "new": newer.model}.items():
        with torch.no_grad():
            full = response_logprobs(model, rollouts, TrainerConfig(dtype="bfloat16"))
        gap[name] = float((full - rollouts.behaviour)[own].abs().mean())
    assert gap["new"] < 0.02, gap
    assert gap["old"] > 0.1, gap


def test_sampled_frequencies_follow_the_tempered_distribution() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0]).expand(200_000, 3)
    token, logprob = sample_token(logits, 2.0, torch.Generator().manual_seed(0))
    wanted = torch.softmax(torch.tensor([0.0, 1.0, 2.0]) / 2, 0)
    found = torch.bincount(token, minlength=3) / len(token)
    # Three standard errors of a share from 200 000 draws.
    assert torch.allclose(found, wanted, atol=3 * 0.5 / 200_000**0.5)
    assert torch.allclose(logprob, wanted.log()[token], atol=1e-6)


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_are_said(broken: float) -> None:
    logits = torch.zeros(3, 5)
    logits[1, 4] = broken
    with pytest.raises(NonFiniteError, match="not finite"):
        sample_token(logits, 1.0, torch.Generator())


def test_a_token_may_be_ruled_out() -> None:
    logits = torch.tensor([[-torch.inf, 0.0, 0.0]]).expand(100, 3)
    token, logprob = sample_token(logits, 1.0, torch.Generator().manual_seed(0))
    assert int(token.min()) == 1
    assert bool(logprob.isfinite().all())
