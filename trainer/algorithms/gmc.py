"""GMC-GRPO, group-mass capping (arXiv 2610.01896): the cap acts on the sum of a group's ratios."""

import math

from trainer.algorithms.ratios import log_group_mass, trajectory_log_ratios, weighted
from trainer.algorithms.types import RatioBatch, Surrogate
from trainer.config import TrainerConfig


def gmc(batch: RatioBatch, config: TrainerConfig) -> Surrogate:
    """omega_i = r_i min(1, (1 + epsilon) G / sum_j r_j): keeps the direction within a group, caps its mass."""
    log_ratios = trajectory_log_ratios(batch).detach()
    excess = log_group_mass(log_ratios, batch.group_size) - math.log1p(config.epsilon)
    shrink = excess.clamp(min=0.0).repeat_interleave(batch.group_size)
    return Surrogate(weighted(batch, log_ratios - shrink), (excess > 0).float().mean())
