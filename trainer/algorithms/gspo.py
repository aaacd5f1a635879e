"""GSPO (arXiv 2507.18071): one length-normalised ratio a trajectory, with the clip of PPO."""

import torch

from trainer.algorithms.ratios import log_band, trajectory_log_ratios, weighted
from trainer.algorithms.types import RatioBatch, Surrogate
from trainer.config import TrainerConfig


def gspo(batch: RatioBatch, config: TrainerConfig) -> Surrogate:
    """The gradient of sum_i |y_i| min(s_i A_i, clip(s_i, 1 - gspo_low, 1 + gspo_high) A_i), s_i = r_i^(1 / |y_i|).

    The gradient of |y_i| s_i is s_i grad log pi(tau_i): so omega_i = s_i, or 0 where the clip acts. The defaults, 3e-4
    and 4e-4, are those of the paper (section 5.1). Its mean over trajectories is `aggregation = "sequence-mean"`, which
    takes |y_i| away again.
    """
    lengths = batch.mask.sum(dim=-1).clamp(min=1)
    log_ratios = trajectory_log_ratios(batch).detach() / lengths
    low, high = log_band(config.thresholds.gspo_low, config.thresholds.gspo_high)
    above, below = log_ratios > high, log_ratios < low
    clipped = (above & (batch.advantages > 0)) | (below & (batch.advantages < 0))
    # As in `grpo`: where A < 0 nothing limits the ratio from above, and e^20 keeps exp finite.
    log_weights = log_ratios.clamp(max=20.0).masked_fill(clipped, -torch.inf)
    return Surrogate(weighted(batch, log_weights), clipped.float().mean())
