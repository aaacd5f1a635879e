"""How far the engine's logprobs are from the learner's for the same weights, and where mu is taken from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from trainer.algorithms.ratios import masked_sum
from trainer.config import RunConfig, TrainerConfig
from trainer.loop.clock import Stopwatch
from trainer.loop.logprobs import response_logprobs
from trainer.loop.rollouts import Rollouts
from trainer.metrics import MetricsRow
from trainer.models import Policy


def fresh_behaviour(
    policy: Policy, rollouts: Rollouts, config: RunConfig, *, first: int, clock: Stopwatch
) -> tuple[Rollouts, MetricsRow]:
    """What both schedules call on rollouts that were just drawn for the updates from `first` on.

    `policy` must have the weights that the engine sampled from. Returns the rollouts with mu as
    `trainer.behaviour_logprobs` says, and the mismatch fields for the row of `first`, if it was measured:
    always where mu is recomputed, else on one batch at the first synchronization in every `probe.every` updates.
    """
    trainer = config.trainer
    if trainer.behaviour_logprobs == "learner":
        with clock.phase("generate"):
            return recompute_behaviour(policy, rollouts, trainer)
    syncs = -(-config.probe.every // config.sync_interval)
    if first // config.sync_interval % syncs:
        return rollouts, {}
    batch = rollouts.rows(0, trainer.group_size * trainer.prompts_per_update)
    with clock.phase("probe"):
        return rollouts, mismatch(policy, batch, trainer)


def mismatch(policy: Policy, rollouts: Rollouts, config: TrainerConfig) -> MetricsRow:
    """The mismatch fields of `MetricsRow`; `policy` must have the weights that the rollouts were sampled from."""
    return _fields(scored_logprobs(policy, rollouts, config), rollouts)


def recompute_behaviour(
    policy: Policy, rollouts: Rollouts, config: TrainerConfig
) -> tuple[Rollouts, MetricsRow]:
    """The same rollouts with mu computed by the learner's code, and how far the engine's was from it.

    `policy` must have the weights that the rollouts were sampled from. In the shapes in which the learner will see
    them, so that at lag 0 the logprobs are equal bit for bit and every ratio is exactly 1.
    """
    logprobs = scored_logprobs(policy, rollouts, config)
    own = replace(rollouts, behaviour=logprobs.masked_fill(~rollouts.mask, 0.0))
    return own, _fields(logprobs, rollouts)


@torch.no_grad()
def scored_logprobs(policy: Policy, rollouts: Rollouts, config: TrainerConfig) -> Tensor:
    """Logprobs of the response tokens under `policy`, in the learner's own micro-batches. [N, T], no gradient."""
    if policy.share is not None:
        return policy.share.score(rollouts)
    return torch.cat(
        [
            response_logprobs(policy.model, rollouts.rows(start, stop), config)
            for start, stop in micro_batches(len(rollouts), config)
        ]
    )


def micro_batches(
    trajectories: int, config: TrainerConfig, *, processes: int = 1
) -> Iterator[tuple[int, int]]:
    """Rows (start, stop) of the passes that the learner makes over consecutive updates: none spans two updates.

    Of several processes each has a pass to make, where there are groups enough: they are dealt out in turn.
    """
    batch = config.group_size * config.prompts_per_update
    share = -(-config.prompts_per_update // processes)
    size = config.group_size * min(config.micro_batch_groups or share, share)
    for first in range(0, trajectories, batch):
        last = min(first + batch, trajectories)
        yield from ((start, min(start + size, last)) for start in range(first, last, size))


def _fields(logprobs: Tensor, rollouts: Rollouts) -> MetricsRow:
    delta = (logprobs - rollouts.behaviour).masked_fill(~rollouts.mask, 0.0)
    return {
        "mismatch_mean": float(delta.abs().sum() / rollouts.mask.sum()),
        "mismatch_max": float(delta.abs().max()),
        "mismatch_log_ratio": float(masked_sum(delta, rollouts.mask).abs().mean()),
    }
