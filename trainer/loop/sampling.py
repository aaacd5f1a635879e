"""Scored rollouts for consecutive updates: the one way in which both schedules make them."""

from __future__ import annotations

from trainer.config import RunConfig
from trainer.engines.protocol import Engine, Refresh
from trainer.loop.clock import Stopwatch
from trainer.loop.evaluation import ROLLOUT, draw, score, stream
from trainer.loop.rollouts import Rollouts
from trainer.models import Policy
from trainer.tasks import Task


def draw_rollouts(
    engine: Engine,
    task: Task,
    policy: Policy,
    config: RunConfig,
    *,
    first: int,
    updates: int,
    clock: Stopwatch,
    refresh: Refresh | None = None,
) -> Rollouts:
    """Whole groups for the updates first .. first + updates - 1, G x P trajectories each, in order.

    Prompts and random numbers are a function of (seed, first, updates) alone. In lockstep, and in overlap with a bound
    of a multiple of S less 1, these do not depend on who is faster.
    """
    rng = stream(config.seed, ROLLOUT, first)
    examples = draw(task, policy, config, rng, updates * config.trainer.prompts_per_update)
    with clock.phase("generate"):
        rollouts = engine.generate(
            [example.prompt for example in examples],
            samples=config.trainer.group_size,
            seed=int(rng.integers(2**62)),
            refresh=refresh,
        )
    with clock.phase("score"):
        return score(task, policy, rollouts, examples, config)
