"""Scoring: rewards of rollouts, the held-out probe, the final evaluation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch

from trainer.config import RunConfig
from trainer.engines import make_engine
from trainer.errors import ConfigError
from trainer.loop.prompts import rendered
from trainer.loop.rollouts import Rollouts
from trainer.models import Policy
from trainer.tasks import Example, Task
from trainer.tasks.scoring import rewards, users_code

ROLLOUT, PROBE, HELD_OUT = 0, 1, 2
"""Purposes of random numbers: streams of different purposes never meet."""


def stream(seed: int, purpose: int, version: int) -> np.random.Generator:
    """Random numbers that are a function of (seed, purpose, version) alone."""
    return np.random.default_rng([seed, purpose, version])


def draw(
    task: Task, policy: Policy, config: RunConfig, rng: np.random.Generator, n: int, *, held_out: bool = False
) -> list[Example]:
    """`n` examples of the task, their prompts rendered for the policy.

    Raises ConfigError when the task returns another number (S and P would be others), and see `rendered`.
    """
    with users_code(task, "prompts"):
        examples = list(task.prompts(rng, n, held_out=held_out))
    if len(examples) != n:
        raise ConfigError(
            f"task.name: {type(task).__name__}.prompts was asked for {n} {'held-out ' if held_out else ''}prompts and "
            f"returned {len(examples)}; draw with replacement, or lower task.held_out"
        )
    return rendered(examples, policy, config.trainer, source=f"task.name: {type(task).__name__}.prompts")


def score(
    task: Task, policy: Policy, rollouts: Rollouts, examples: Sequence[Example], config: RunConfig
) -> Rollouts:
    """Rewards of `rollouts`, whose rows are whole groups of `examples` in order; NaN where scoring was skipped.

    The task is called for no more than an update's completions at a time, so that a hang is noticed in bounded time.
    Raises ConfigError naming the sample, see `trainer.tasks.scoring.rewards`.
    """
    samples = len(rollouts) // len(examples)
    texts = policy.tokenizer.batch_decode(rollouts.response, skip_special_tokens=True)
    references = [example.reference for example in examples for _ in range(samples)]
    calls = math.ceil(len(texts) / (config.trainer.group_size * config.trainer.prompts_per_update))
    ends = [round(len(texts) * call / calls) for call in range(calls + 1)]
    found = [
        rewards(task, texts[start:end], references[start:end], config.task) for start, end in pairwise(ends)
    ]
    return rollouts.scored([reward for part in found for reward in part])


class HeldOut:
    """The learner's own reward on fixed held-out prompts: version known exactly, same random numbers every time."""

    def __init__(self, policy: Policy, task: Task, config: RunConfig) -> None:
        rng = stream(config.seed, HELD_OUT, 0)
        most = max(config.task.held_out, config.probe.prompts)
        self._examples = draw(task, policy, config, rng, most, held_out=True)
        self._policy, self._task, self._config = policy, task, config

    def probe(self) -> tuple[float, float]:
        """Mean reward on the probe's prompts and its standard error, without those that could not be scored."""
        rewards = self._rewards(self._examples[: self._config.probe.prompts], PROBE)
        return float(rewards.mean()), float(rewards.std() / math.sqrt(len(rewards)))

    def evaluate(self) -> float:
        """Mean reward on all held-out prompts, one sample each at the training temperature."""
        return float(self._rewards(self._examples[: self._config.task.held_out], HELD_OUT).mean())

    def _rewards(self, examples: Sequence[Example], purpose: int) -> torch.Tensor:
        seed = int(stream(self._config.seed, purpose, 1).integers(2**62))
        engine = make_engine(self._policy, self._config, share_weights=True)
        rollouts = engine.generate([example.prompt for example in examples], samples=1, seed=seed)
        reward = score(self._task, self._policy, rollouts, examples, self._config).reward
        return reward[~reward.isnan()]
