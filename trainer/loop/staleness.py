"""Probe of the staleness bias: how far the estimator's expected gradient is from that of the present policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from trainer.algorithms import ESTIMATORS, RatioBatch
from trainer.algorithms.advantages import group_advantages
from trainer.algorithms.aggregation import aggregated
from trainer.algorithms.ratios import trajectory_log_ratios, weighted
from trainer.config import TrainerConfig
from trainer.loop.logprobs import response_logprobs
from trainer.loop.mismatch import scored_logprobs
from trainer.loop.rollouts import Rollouts
from trainer.metrics import MetricsRow
from trainer.models import Policy

Objective = Callable[[RatioBatch], Tensor]
"""[] sum over trajectories, with gradient."""


def staleness_bias(policy: Policy, rollouts: Rollouts, config: TrainerConfig) -> MetricsRow:
    """The fields `bias_sq` and `full_grad_sq` of `MetricsRow`, for whole groups of at least two prompts.

    The gradient of the estimator is compared with that of the same trajectories under full ratios without a cap,
    which is unbiased for the present policy. A squared norm of a mean would count the noise as bias, so it is the
    product of two independent halves of the prompts. Weights, gradients, optimizer and random numbers stay as they
    are. Costs about two updates and holds two gradients at a time.
    """
    estimator = ESTIMATORS[config.estimator]
    # The bits of a forward pass depend on its shape. Values in the learner's shape, gradients in halves: where the
    # learner sees ratios of exactly 1, so does the probe.
    values = scored_logprobs(policy, rollouts, config)
    advantages, divisor = aggregated(group_advantages(rollouts.reward, config), rollouts.mask, config)

    def product(objective: Objective) -> float:
        halves = [
            _gradient(
                policy,
                rollouts,
                values,
                advantages,
                divisor=divisor,
                config=config,
                objective=objective,
                groups=groups,
            )
            for groups in _halves(len(rollouts) // config.group_size)
        ]
        return sum(float((a * b).sum()) for a, b in zip(*halves, strict=True))

    return {
        "bias_sq": product(lambda batch: estimator(batch, config).objective - full_objective(batch)),
        "full_grad_sq": product(full_objective),
    }


def full_objective(batch: RatioBatch) -> Tensor:
    """sum_i r_i A_i log pi(tau_i) with the full trajectory ratio, held constant and not capped. []."""
    return weighted(batch, trajectory_log_ratios(batch))


def _halves(groups: int) -> tuple[range, range]:
    return range(groups // 2), range(groups // 2, groups)


def _gradient(
    policy: Policy,
    rollouts: Rollouts,
    values: Tensor,
    advantages: Tensor,
    *,
    divisor: int,
    config: TrainerConfig,
    objective: Objective,
    groups: range,
) -> Sequence[Tensor]:
    """Gradient of the learner's loss as these groups alone estimate it, one tensor a parameter."""
    size, at_once = config.group_size, config.micro_batch_groups or len(groups)
    parameters = [p for p in policy.model.parameters() if p.requires_grad]
    total = [torch.zeros_like(p) for p in parameters]
    share = len(groups) * size / len(rollouts) * divisor
    for first in range(groups.start, groups.stop, at_once):
        rows = slice(first * size, min(first + at_once, groups.stop) * size)
        part = rollouts.rows(rows.start, rows.stop)
        fresh = response_logprobs(policy.model, part, config)
        logprobs = values[rows] + (fresh - fresh.detach())
        batch = RatioBatch(logprobs, part.behaviour, part.mask, advantages[rows], size)
        found = torch.autograd.grad(-objective(batch) / share, parameters, allow_unused=True)
        for own, new in zip(total, found, strict=True):
            if new is not None:
                own.add_(new)
    return total
