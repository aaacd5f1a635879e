"""Stale policy gradient: no correction, the limit in which the S^-1 law of arXiv 2607.01083 is sharpest."""

from trainer.algorithms.ratios import masked_sum, weighted
from trainer.algorithms.types import RatioBatch, Surrogate
from trainer.config import TrainerConfig


def none(batch: RatioBatch, config: TrainerConfig) -> Surrogate:
    """omega_i = 1."""
    log_weights = masked_sum(batch.behaviour, batch.mask).mul(0.0)
    return Surrogate(weighted(batch, log_weights), log_weights.new_zeros(()))
