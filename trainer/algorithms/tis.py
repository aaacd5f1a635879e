"""TIS, truncated importance sampling of tokens.

Proposed for the mismatch between engine and learner by F. Yao et al., "Your Efficient RL Framework Secretly Brings You
Off-Policy RL Training" (2025), and found in most frameworks.
"""

from trainer.algorithms.ratios import log_band, token_log_ratios, token_weighted
from trainer.algorithms.types import RatioBatch, Surrogate
from trainer.config import TrainerConfig


def tis(batch: RatioBatch, config: TrainerConfig) -> Surrogate:
    """sum_i A_i sum_t min(rho_t, 1 + tis_high) log pi(y_t), the weight held constant.

    Frameworks multiply this weight with a PPO objective whose ratio is that of the learner to itself some updates ago.
    Here mu is the engine's, one ratio holds mismatch and staleness, and there is no second one, as with verl's
    `rollout_is = token`, `loss_type = reinforce`. The cap of 2 is the default of verl, slime, SkyRL and open-instruct.
    """
    log_ratios = token_log_ratios(batch).detach()
    _, cap = log_band(1.0, config.thresholds.tis_high)
    acts = (log_ratios > cap) & batch.mask
    return Surrogate(token_weighted(batch, log_ratios.clamp(max=cap)), acts.sum() / batch.mask.sum())
