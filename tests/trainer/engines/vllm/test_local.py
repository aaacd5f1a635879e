"""vLLM in this process against full forward passes of the learner."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor
from vllm_helpers import EXACT, first_token_p_value, gaps, prompts, running, shaken, weights

from trainer.engines import Engine
from trainer.engines.hf import HfEngine
from trainer.errors import ConfigError
from trainer.loop.rollouts import Rollouts
from trainer.models import Policy
from trainer.tasks import RunningSum

pytestmark = [pytest.mark.vllm, pytest.mark.slow]


@pytest.fixture(scope="module")
def engine(policy: Policy) -> Iterator[Engine]:
    with running(policy) as engine:
        yield engine


@pytest.fixture
def base(policy: Policy, engine: Engine) -> dict[str, Tensor]:
    """The policy's own weights, which the engine has too."""
    engine.update_weights(weights(policy), 0)
    return weights(policy)


def test_logprobs_at_lag_0_are_the_learners(policy: Policy, engine: Engine, base: dict[str, Tensor]) -> None:
    rollouts = engine.generate(prompts(32), samples=8, seed=1)
    assert len(rollouts) == 32 * 8
    assert float(gaps(policy, base, rollouts).max()) < EXACT
    assert torch.equal(rollouts.version, torch.where(rollouts.mask, 0, -1))


def test_prompts_of_different_lengths(policy: Policy, engine: Engine, base: dict[str, Tensor]) -> None:
    rollouts = engine.generate(prompts(16, ragged=True), samples=4, seed=2)
    assert rollouts.prompt.shape == (64, 9)
    assert rollouts.prompt_mask.sum(-1).unique().tolist() == [5, 6, 7, 8, 9]
    # Cut prompts are not what the policy was made for: there even the full forward is 1e-5 from float64.
    assert float(gaps(policy, base, rollouts).max()) < 3 * EXACT


def test_prompts_and_padding_are_those_of_the_transformers_engine(
    policy: Policy, engine: Engine, base: dict[str, Tensor]
) -> None:
    asked = prompts(4, ragged=True)
    mine = engine.generate(asked, samples=2, seed=0)
    other = HfEngine(policy, response_limit=9, temperature=1.0, dtype="float32").generate(
        asked, samples=2, seed=0
    )
    assert torch.equal(mine.prompt, other.prompt)
    assert torch.equal(mine.prompt_mask, other.prompt_mask)
    for name in ("response", "mask", "behaviour", "version", "reward"):
        assert getattr(mine, name).shape == getattr(other, name).shape
        assert getattr(mine, name).dtype == getattr(other, name).dtype
    for rollouts in (mine, other):
        assert bool((rollouts.response[~rollouts.mask] == policy.pad).all())
        assert bool((rollouts.behaviour[~rollouts.mask] == 0).all())
        assert bool(rollouts.reward.isnan().all())


def test_nothing_follows_the_end_token_and_the_limit_truncates(
    policy: Policy, engine: Engine, base: dict[str, Tensor]
) -> None:
    rollouts = engine.generate(prompts(32), samples=8, seed=4)
    ended = (rollouts.response == policy.eos) & rollouts.mask
    assert bool((ended.sum(-1) <= 1).all())
    assert torch.equal(rollouts.mask.sum(-1) < 9, ended[:, :8].any(-1))


def test_same_seed_same_rollouts_and_other_seed_others(engine: Engine, base: dict[str, Tensor]) -> None:
    first, again, other = (engine.generate(prompts(16), samples=4, seed=s) for s in (5, 5, 6))
    assert torch.equal(first.response, again.response)
    assert torch.equal(first.behaviour, again.behaviour)
    assert not torch.equal(first.response, other.response)


def test_logprobs_follow_each_of_several_pushes(
    policy: Policy, engine: Engine, base: dict[str, Tensor]
) -> None:
    for version in (1, 2, 3, 7):
        values = shaken(base, version)
        engine.update_weights(values, version)
        rollouts = engine.generate(prompts(32), samples=4, seed=version)
        assert float(gaps(policy, values, rollouts).max()) < EXACT
        assert float(gaps(policy, base, rollouts).max()) > 1e-2
        assert engine.version == version
        assert bool((rollouts.version[rollouts.mask] == version).all())


def test_responses_in_flight_continue_with_new_weights(
    policy: Policy, engine: Engine, base: dict[str, Tensor]
) -> None:
    """Two pushes while more requests wait than run: versions say which weights sampled which token."""
    values = {0: base, 1: shaken(base, 1), 2: shaken(base, 2)}
    asked = iter([None, None, None, (values[1], 1), None, None, (values[2], 2)])
    rollouts = engine.generate(prompts(64), samples=8, seed=3, refresh=lambda: next(asked, None))
    assert [int(v) for v in rollouts.version[rollouts.mask].unique()] == [0, 1, 2]
    mixed = (rollouts.version == 0).any(-1) & (rollouts.version == 2).any(-1)
    assert int(mixed.sum()) > 100
    for version, own in values.items():
        sampled = rollouts.version == version
        assert float(gaps(policy, own, rollouts)[sampled].max()) < EXACT
        wrong = values[(version + 1) % 3]
        assert float(gaps(policy, wrong, rollouts)[sampled].max()) > 1e-2
    assert engine.version == 2


def reward_mean_and_se(policy: Policy, rollouts: Rollouts, references: list[str]) -> tuple[float, float]:
    texts = policy.tokenizer.batch_decode(rollouts.response, skip_special_tokens=True)
    rewards = np.array(RunningSum().score(texts, references))
    return float(rewards.mean()), float(rewards.std() / len(rewards) ** 0.5)


def test_mean_reward_is_that_of_the_transformers_engine(
    policy: Policy, engine: Engine, base: dict[str, Tensor]
) -> None:
    examples = RunningSum().prompts(np.random.default_rng(1), 512, held_out=True)
    asked, references = [e.prompt for e in examples], [e.reference for e in examples]
    hf = HfEngine(policy, response_limit=9, temperature=1.0, dtype="float32")
    (mine, own_se), (other, other_se) = (
        reward_mean_and_se(policy, sampler.generate(asked, samples=1, seed=11), references)
        for sampler in (engine, hf)
    )
    assert abs(mine - other) < 3.5 * (own_se**2 + other_se**2) ** 0.5


def test_tokens_follow_the_learners_distribution(
    policy: Policy, engine: Engine, base: dict[str, Tensor]
) -> None:
    assert first_token_p_value(policy, engine, temperature=1.0) > 1e-3


def test_an_empty_prompt_and_a_long_one_are_config_errors(engine: Engine) -> None:
    with pytest.raises(ConfigError, match="empty after tokenization"):
        engine.generate(["1=", ""], samples=1, seed=0)
    with pytest.raises(ConfigError, match=r"trainer\.prompt_limit.*of 60 tokens"):
        engine.generate(["1" * 59 + "="], samples=1, seed=0)


def test_requests_of_a_generation_that_was_broken_off_are_gone(
    policy: Policy, engine: Engine, base: dict[str, Tensor]
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.generate(prompts(64), samples=8, seed=3, refresh=interrupt)
    rollouts = engine.generate(prompts(4), samples=2, seed=0)
    assert len(rollouts) == 8
    assert float(gaps(policy, base, rollouts).max()) < EXACT
