"""MIS, masked importance sampling of tokens: what lies outside a band is left out, not capped."""

import torch

from trainer.algorithms.ratios import log_band, token_log_ratios, token_weighted
from trainer.algorithms.types import RatioBatch, Surrogate
from trainer.config import TrainerConfig


def mis(batch: RatioBatch, config: TrainerConfig) -> Surrogate:
    """sum_i A_i sum_t rho_t [1 - mis_low <= rho_t <= 1 + mis_high] log pi(y_t), the weight held constant.

    The band from 0.5 to 5 is that of IcePop (Ling team, 2025) and the default of OpenRLHF. Both mask by the ratio of
    learner to engine; here it also holds the staleness. A masked token still counts in the divisor of the loss.
    """
    log_ratios = token_log_ratios(batch).detach()
    low, high = log_band(config.thresholds.mis_low, config.thresholds.mis_high)
    masked = ((log_ratios < low) | (log_ratios > high)) & batch.mask
    log_weights = log_ratios.masked_fill(masked, -torch.inf)
    return Surrogate(token_weighted(batch, log_weights), masked.sum() / batch.mask.sum())
