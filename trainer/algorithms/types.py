"""What an estimator sees and what it returns. Suffixes: N trajectories, T response tokens, G group size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from trainer.config import TrainerConfig


@dataclass(frozen=True)
class RatioBatch:
    """Whole groups of trajectories; rows i*G .. (i+1)*G - 1 belong to group i."""

    logprobs: Tensor
    """[N, T] log pi_theta(y_t), with gradient. Entries outside the mask may hold anything."""
    behaviour: Tensor
    """[N, T] log mu(y_t), of the distribution that was really sampled from; no gradient."""
    mask: Tensor
    """[N, T] bool: response tokens, the end token included."""
    advantages: Tensor
    """[N] group-normalised rewards; no gradient."""
    group_size: int
    """G."""


@dataclass(frozen=True)
class Surrogate:
    """An objective whose gradient is N x g, with what the weights did."""

    objective: Tensor
    """[] sum over trajectories of omega_i A_i log pi(tau_i) or its equivalent, with gradient."""
    activation: Tensor
    """[] share of groups, trajectories or tokens on which the cap acts; no gradient."""


Estimator = Callable[[RatioBatch, TrainerConfig], Surrogate]
