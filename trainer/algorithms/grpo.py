"""Vanilla GRPO: token ratios with the PPO clip, as in the DeepSeekMath paper (arXiv 2402.03300)."""

import torch

from trainer.algorithms.types import RatioBatch, Surrogate
from trainer.config import TrainerConfig


def grpo(batch: RatioBatch, config: TrainerConfig) -> Surrogate:
    """sum_i sum_t min(rho_t A_i, clip(rho_t, 1 - clip_low, 1 + clip_high) A_i)."""
    log_ratios = (batch.logprobs - batch.behaviour).masked_fill(~batch.mask, 0.0)
    advantages = batch.advantages.unsqueeze(-1)
    # A ratio beyond e^20 is deep in the clipped region for A > 0; the clamp keeps exp finite for A < 0.
    ratios = log_ratios.clamp(max=20.0).exp()
    clipped = ratios.clamp(1 - config.clip_low, 1 + config.clip_high)
    objective = torch.minimum(ratios * advantages, clipped * advantages).masked_fill(~batch.mask, 0.0)
    acts = (ratios * advantages > clipped * advantages) & batch.mask
    return Surrogate(objective.sum(), acts.sum() / batch.mask.sum())
