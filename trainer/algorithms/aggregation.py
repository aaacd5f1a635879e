"""What the terms of trajectories and tokens count for in the loss of a batch."""

from __future__ import annotations

from torch import Tensor

from trainer.config import TrainerConfig


def aggregated(advantages: Tensor, mask: Tensor, config: TrainerConfig) -> tuple[Tensor, int]:
    """Advantages [N] and a divisor such that -objective / divisor is the loss of the batch. `mask` is [N, T] bool.

    Each estimator's gradient is a sum over response tokens, in which all tokens of a trajectory share A_i (and omega_i,
    where the weight is the trajectory's). It is linear in A_i for positive factors, so to weigh the terms of a
    trajectory is to weigh its advantage:

    - `token-mean`: sum / all response tokens of the batch. A long answer counts for more than a short one.
    - `sequence-mean`: the mean over trajectories of the mean over their tokens: A_i / |y_i|, divided by N.
    - `constant`: sum / (N x response_limit): the plain policy gradient but for a constant, as Dr. GRPO has it (arXiv
      2503.20783).
    """
    if config.aggregation == "sequence-mean":
        return advantages / mask.sum(dim=-1).clamp(min=1), len(mask)
    if config.aggregation == "constant":
        return advantages, len(mask) * config.response_limit
    return advantages, int(mask.sum())
