"""The update: micro-batches of whole groups, and models that share weights between their ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from trainer.config import ModelConfig, TrainerConfig
from trainer.engines.hf import HfEngine
from trainer.loop import logprobs
from trainer.loop.learner import Learner
from trainer.loop.rollouts import Rollouts
from trainer.models import Policy, load_policy
from trainer.names import EstimatorName
from trainer.tasks import RunningSum

P, G = 5, 4


@pytest.fixture(scope="module")
def batch() -> Rollouts:
    """Stale rollouts with rewards: ratios spread enough for every cap to act somewhere."""
    policy = load_policy(ModelConfig(), device="cpu")
    engine = HfEngine(policy, response_limit=9, temperature=1.0, dtype="float32")
    prompts = [example.prompt for example in RunningSum().prompts(np.random.default_rng(0), P)]
    drawn = engine.generate(prompts, samples=G, seed=0)
    noise = torch.randn(drawn.behaviour.shape, generator=torch.Generator().manual_seed(0))
    stale = (drawn.behaviour + 0.2 * noise).masked_fill(~drawn.mask, 0.0)
    rewards = torch.rand(P * G, generator=torch.Generator().manual_seed(1)).tolist()
    return replace(drawn, behaviour=stale).scored(rewards)


def gradient(batch: Rollouts, **changes: Any) -> torch.Tensor:
    policy = load_policy(ModelConfig(), device="cpu")
    learner = Learner(policy, TrainerConfig(group_size=G, prompts_per_update=P, **changes))
    learner.update(batch, 0.0)
    assert learner.previous_gradient is not None
    return learner.previous_gradient


@pytest.mark.parametrize("estimator", get_args(EstimatorName))
def test_accumulated_gradient_is_that_of_one_batch(batch: Rollouts, estimator: str) -> None:
    whole = gradient(batch, estimator=estimator)
    assert float(whole.norm()) > 1e-3
    for groups in (1, 2):  # 2 leaves a smaller last part
        parts = gradient(batch, estimator=estimator, micro_batch_groups=groups)
        assert float((parts - whole).abs().max()) < 1e-6


@pytest.mark.parametrize("estimator", get_args(EstimatorName))
def test_recomputation_and_chunks_keep_the_gradient(
    batch: Rollouts, monkeypatch: pytest.MonkeyPatch, estimator: str
) -> None:
    whole = gradient(batch, estimator=estimator)
    monkeypatch.setattr(logprobs, "LOGIT_BYTES", 1000)
    parts = gradient(batch, estimator=estimator, micro_batch_groups=2, gradient_checkpointing=True)
    assert float((parts - whole).abs().max()) < 1e-6


def test_tied_embeddings_are_one_parameter_and_stay_tied(batch: Rollouts) -> None:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=13,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=32,
        tie_word_embeddings=True,
    )
    model = Qwen3ForCausalLM(config).eval()
    learner = Learner(Policy(model, None, 12, 0), TrainerConfig(group_size=G, prompts_per_update=P))
    before = model.lm_head.weight.detach().clone()
    assert len(learner.parameters) == len(dict(model.named_parameters()))
    learner.update(batch, 1e-2)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert not torch.equal(model.lm_head.weight, before)
