"""Engines, prompts and weights for the tests of this folder."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from trainer.config import EngineName, ModelConfig, RunConfig, TrainerConfig
from trainer.engines import Engine, make_engine
from trainer.loop.logprobs import response_logprobs
from trainer.loop.rollouts import Rollouts
from trainer.models import Policy, load_policy, save_policy
from trainer.tasks import RunningSum

EXACT = 1e-5
"""How far float32 logprobs of engine and learner may be apart."""


def prompts(n: int, *, seed: int = 0, ragged: bool = False) -> list[str]:
    drawn = [example.prompt for example in RunningSum().prompts(np.random.default_rng(seed), n)]
    return [prompt[i % 5 :] for i, prompt in enumerate(drawn)] if ragged else drawn


@contextmanager
def running(policy: Policy, name: EngineName = "vllm", **settings: Any) -> Iterator[Engine]:
    engine = make_engine(policy, RunConfig(engine=name, **settings))
    try:
        yield engine
    finally:
        engine.close()


def weights(policy: Policy) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in policy.model.named_parameters()}


def shaken(base: Mapping[str, Tensor], seed: int, *, by: float = 0.05) -> dict[str, Tensor]:
    """The same weights with noise of `by` times their mean size."""
    rng = torch.Generator().manual_seed(seed)
    return {n: p + by * p.abs().mean() * torch.randn(p.shape, generator=rng) for n, p in base.items()}


def gaps(
    policy: Policy, values: Mapping[str, Tensor], rollouts: Rollouts, *, temperature: float = 1.0
) -> Tensor:
    """[N, T] distance of the behaviour logprobs from the learner's with `values`; 0 outside the mask."""
    own = weights(policy)
    parameters = dict(policy.model.named_parameters())
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(values[name])
        full = response_logprobs(policy.model, rollouts, TrainerConfig(temperature=temperature))
        for name, parameter in parameters.items():
            parameter.copy_(own[name])
    return (full - rollouts.behaviour).masked_fill(~rollouts.mask, 0.0).abs()


def first_token_p_value(policy: Policy, sampler: Engine, *, temperature: float) -> float:
    """Of a chi-square test of 4096 first tokens after one prompt against the learner's distribution."""
    rollouts = sampler.generate(["4="], samples=4096, seed=8)
    with torch.no_grad():
        logits = policy.model(input_ids=rollouts.prompt[:1]).logits[0, -1]
    expected = (torch.softmax(logits.double() / temperature, -1) * 4096).numpy()
    found = np.bincount(rollouts.response[:, 0].numpy(), minlength=len(expected))
    rare = expected < 5
    return float(
        stats.chisquare(
            [*found[~rare], found[rare].sum()],
            [*expected[~rare], expected[rare].sum()],
        ).pvalue
    )


def made_policy(folder: Path, **shape: Any) -> tuple[Policy, ModelConfig]:
    """A random policy with the shipped one's tokenizer and shape, as far as `shape` does not change it."""
    from transformers import AutoModelForCausalLM

    shipped = load_policy(ModelConfig(), device="cpu")
    model_config = copy.deepcopy(shipped.model.config)
    model_config.update(shape)
    torch.manual_seed(0)
    shipped.model = AutoModelForCausalLM.from_config(model_config).float()
    with torch.no_grad():
        shipped.model.model.embed_tokens.weight.mul_(4)  # not near uniform
    # What must not leak into sampling: a temperature, a top-k and an end token more than the tokenizer has.
    shipped.model.generation_config.update(temperature=0.1, top_k=1, do_sample=True, eos_token_id=[3, 12])
    save_policy(shipped, folder)
    settings = ModelConfig(path=str(folder))
    return load_policy(settings, device="cpu"), settings
