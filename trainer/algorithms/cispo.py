"""CISPO (MiniMax-M1, arXiv 2506.13585): clipped token ratios as constant weights; no token loses its gradient."""

from trainer.algorithms.ratios import log_band, token_log_ratios, token_weighted
from trainer.algorithms.types import RatioBatch, Surrogate
from trainer.config import TrainerConfig


def cispo(batch: RatioBatch, config: TrainerConfig) -> Surrogate:
    """sum_i A_i sum_t clip(rho_t, 1 - cispo_low, 1 + cispo_high) log pi(y_t), the weight held constant.

    The paper sets no lower limit and tunes the upper one. Weights up to 5 (cispo_high = 4) are the default of SkyRL.
    There the ratio is to the policy before the updates on the same rollouts; here it is to the one that sampled them.
    """
    log_ratios = token_log_ratios(batch).detach()
    low, high = log_band(config.thresholds.cispo_low, config.thresholds.cispo_high)
    acts = ((log_ratios < low) | (log_ratios > high)) & batch.mask
    return Surrogate(token_weighted(batch, log_ratios.clamp(low, high)), acts.sum() / batch.mask.sum())
