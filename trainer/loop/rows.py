"""The row of `metrics.jsonl` that an update leaves."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from trainer.algorithms.advantages import rewards_differ
from trainer.algorithms.ratios import effective_sample_size, log_group_mass
from trainer.config import RunConfig, cumulative_learning_rate
from trainer.loop.learner import Step
from trainer.loop.rollouts import Rollouts
from trainer.metrics import MetricsRow


def metrics_row(
    config: RunConfig,
    rollouts: Rollouts,
    step: Step,
    *,
    update: int,
    rate: float,
    full_marks: float,
    eos: int,
) -> MetricsRow:
    """Everything that is measured at every update, see `MetricsRow`."""
    group_size = config.trainer.group_size
    lag = update - rollouts.oldest_version
    row: MetricsRow = {
        "update": update,
        "version": int(rollouts.oldest_version.min()),
        "learning_rate": rate,
        "cumulative_lr": cumulative_learning_rate(
            update + 1, peak=config.learning_rate, warmup=config.trainer.warmup
        ),
        **_reward_fields(rollouts.reward, group_size, full_marks),  # type: ignore[typeddict-item]
        "loss": step.loss,
        "entropy": step.entropy,
        "grad_norm": step.grad_norm,
        "lag_mean": float(lag.float().mean()),
        "lag_max": int(lag.max()),
        "lag_histogram": [[int(x), int(n)] for x, n in zip(*lag.unique(return_counts=True), strict=True)],
        **ratio_statistics(step.log_ratios, group_size),
        "cap_activation": step.cap_activation,
        "response_length": float(rollouts.mask.sum(dim=-1).float().mean()),
        "truncated": float(rollouts.truncated(eos).float().mean()),
        "tokens_generated": int(rollouts.mask.sum()),
        "tokens_learned": int(rollouts.mask.sum()),
    }
    if step.grad_cosine is not None:
        row["grad_cosine"] = step.grad_cosine
    return row


def ratio_statistics(log_ratios: Tensor, group_size: int) -> dict[str, float]:
    """Fields of a metrics row that depend on the trajectory ratios alone. `log_ratios` is [N]."""
    mass = log_group_mass(log_ratios, group_size).exp()
    return {
        "log_ratio_mean": float(log_ratios.mean()),
        "log_ratio_abs_mean": float(log_ratios.abs().mean()),
        "log_ratio_max": float(log_ratios.max()),
        "group_mass_mean": float(mass.mean()),
        "group_mass_max": float(mass.max()),
        "ess": float(effective_sample_size(log_ratios)),
    }


def _reward_fields(reward: torch.Tensor, group_size: int, full_marks: float) -> dict[str, object]:
    """Mean, its standard error with prompts as clusters, and the histogram of `MetricsRow.pass_histogram`.

    Over the scored trajectories: groups without any are left out.
    """
    groups = reward.view(-1, group_size)
    unscored = groups.isnan()
    groups = groups[~unscored.all(dim=-1)]
    means = groups.nanmean(dim=-1)
    spread = float(means.std()) if len(means) > 1 else float(groups[~groups.isnan()].std())
    passed = (groups >= full_marks).float().masked_fill(groups.isnan(), float("nan")).nanmean(dim=-1)
    edges = torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0 - 1e-6], device=passed.device)
    bins = torch.bucketize(passed, edges, right=False)
    return {
        "reward_mean": float(means.mean()),
        "reward_se": spread / math.sqrt(len(means)),
        "pass_histogram": torch.bincount(bins, minlength=6).tolist(),
        "signal": float(rewards_differ(groups).float().mean()),
        "unscored": int(unscored.sum()),
    }
