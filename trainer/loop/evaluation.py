"""Scoring: rewards of rollouts, the held-out probe, the final evaluation."""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from numbers import Real
from pathlib import Path

import numpy as np
import torch

from trainer.config import RunConfig
from trainer.engines import make_engine
from trainer.errors import ConfigError, TrainerError
from trainer.loop.rollouts import Rollouts
from trainer.models import Policy
from trainer.tasks import Example, Task

ROLLOUT, PROBE, HELD_OUT = 0, 1, 2
"""Purposes of random numbers: streams of different purposes never meet."""


def stream(seed: int, purpose: int, version: int) -> np.random.Generator:
    """Random numbers that are a function of (seed, purpose, version) alone."""
    return np.random.default_rng([seed, purpose, version])


@contextmanager
def users_code(task: Task, method: str) -> Iterator[None]:
    """Whatever a user's own task raises is theirs to mend: say where it came from, and that it was theirs."""
    try:
        yield
    except (Exception, SystemExit) as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        raise ConfigError(
            f"task.name: {type(task).__name__}.{method} raised {type(error).__name__}: {error} "
            f"({Path(where.filename).name}, line {where.lineno})"
        ) from error


def draw(task: Task, rng: np.random.Generator, n: int, *, held_out: bool = False) -> list[Example]:
    """`n` examples of the task. Raises ConfigError when it returns another number, for S and P would be others."""
    with users_code(task, "prompts"):
        examples = list(task.prompts(rng, n, held_out=held_out))
        strings = all(isinstance(e.prompt, str) and isinstance(e.reference, str) for e in examples)
    if not strings:
        raise ConfigError(f"task.name: {type(task).__name__}.prompts must return Examples of two strings")
    if len(examples) != n:
        raise ConfigError(
            f"task.name: {type(task).__name__}.prompts was asked for {n} {'held-out ' if held_out else ''}prompts and "
            f"returned {len(examples)}; draw with replacement, or lower task.held_out"
        )
    return examples


def score(task: Task, policy: Policy, rollouts: Rollouts, examples: Sequence[Example]) -> Rollouts:
    """Rewards of `rollouts`, whose rows are whole groups of `examples` in order.

    Raises TrainerError naming the sample when the task returns something that is not a finite number.
    """
    samples = len(rollouts) // len(examples)
    texts = policy.tokenizer.batch_decode(rollouts.response, skip_special_tokens=True)
    references = [example.reference for example in examples for _ in range(samples)]
    with users_code(task, "score"):
        rewards = list(task.score(texts, references))
    if len(rewards) != len(texts):
        raise TrainerError(f"the task returned {len(rewards)} rewards for {len(texts)} completions")
    for text, reference, reward in zip(texts, references, rewards, strict=True):
        if not isinstance(reward, Real) or not math.isfinite(reward):
            raise TrainerError(
                f"the task returned {reward!r} for {text!r} (reference {reference!r}): not a finite number"
            )
    return rollouts.scored([float(reward) for reward in rewards])


class HeldOut:
    """The learner's own reward on fixed held-out prompts: version known exactly, same random numbers every time."""

    def __init__(self, policy: Policy, task: Task, config: RunConfig) -> None:
        rng = stream(config.seed, HELD_OUT, 0)
        self._examples = draw(task, rng, max(config.task.held_out, config.probe.prompts), held_out=True)
        self._policy, self._task, self._config = policy, task, config
        self._engine = make_engine(policy, config, share_weights=True)

    def probe(self) -> tuple[float, float]:
        """Mean reward on the probe's prompts and its standard error."""
        rewards = self._rewards(self._examples[: self._config.probe.prompts], PROBE)
        return float(rewards.mean()), float(rewards.std() / math.sqrt(len(rewards)))

    def evaluate(self) -> float:
        """Mean reward on all held-out prompts, one sample each at the training temperature."""
        return float(self._rewards(self._examples[: self._config.task.held_out], HELD_OUT).mean())

    def _rewards(self, examples: Sequence[Example], purpose: int) -> torch.Tensor:
        seed = int(stream(self._config.seed, purpose, 1).integers(2**62))
        rollouts = self._engine.generate([example.prompt for example in examples], samples=1, seed=seed)
        return score(self._task, self._policy, rollouts, examples).reward
