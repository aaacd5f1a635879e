"""TIC-GRPO (arXiv 2508.02833) as a PPO-style objective, differentiated through the ratio."""

import math

from trainer.algorithms.ratios import trajectory_log_ratios
from trainer.algorithms.types import RatioBatch, Surrogate
from trainer.config import TrainerConfig


def tic_zero(batch: RatioBatch, config: TrainerConfig) -> Surrogate:
    """sum_i min(r_i, 1 + epsilon) A_i: below the cap the weight is r_i, above it there is no gradient."""
    log_ratios = trajectory_log_ratios(batch)
    cap = math.log1p(config.epsilon)
    # Clamping before exp keeps a ratio of e^200 finite and its gradient exactly zero.
    objective = (log_ratios.clamp(max=cap).exp() * batch.advantages).sum()
    return Surrogate(objective, (log_ratios.detach() > cap).float().mean())
