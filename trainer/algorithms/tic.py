"""TIC-GRPO (arXiv 2508.02833) with detached weights: each trajectory ratio is capped by itself."""

import math

from trainer.algorithms.ratios import trajectory_log_ratios, weighted
from trainer.algorithms.types import RatioBatch, Surrogate
from trainer.config import TrainerConfig


def tic(batch: RatioBatch, config: TrainerConfig) -> Surrogate:
    """omega_i = min(r_i, 1 + epsilon)."""
    log_ratios = trajectory_log_ratios(batch).detach()
    cap = math.log1p(config.epsilon)
    return Surrogate(weighted(batch, log_ratios.clamp(max=cap)), (log_ratios > cap).float().mean())
