"""Trajectory ratios, kept as logarithms: a masked entry never reaches `exp`, sums are log-sum-exp."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from trainer.algorithms.types import RatioBatch


def masked_sum(values: Tensor, mask: Tensor) -> Tensor:
    """Sum of `values` [N, T] over the tokens in `mask` [N, T]; what lies outside is ignored, NaN included. [N]."""
    return values.masked_fill(~mask, 0.0).sum(dim=-1)


def trajectory_log_ratios(batch: RatioBatch) -> Tensor:
    """log r_i = sum_t [log pi_theta(y_t) - log mu(y_t)], the full product over response tokens. [N], with gradient."""
    return masked_sum(batch.logprobs - batch.behaviour, batch.mask)


def token_log_ratios(batch: RatioBatch) -> Tensor:
    """log rho_t = log pi_theta(y_t) - log mu(y_t), 0 outside the mask. [N, T], with gradient."""
    return (batch.logprobs - batch.behaviour).masked_fill(~batch.mask, 0.0)


def log_band(low: float, high: float) -> tuple[float, float]:
    """log(1 - low) and log(1 + high); a `low` of 1 is no lower limit."""
    return math.log1p(-low) if low < 1 else -math.inf, math.log1p(high)


def log_group_mass(log_ratios: Tensor, group_size: int) -> Tensor:
    """log of the mean ratio of each group, log(sum_j r_j / G). [N] -> [N / G]."""
    return torch.logsumexp(log_ratios.view(-1, group_size), dim=-1) - math.log(group_size)


def effective_sample_size(log_ratios: Tensor) -> Tensor:
    """(sum r)^2 / (N sum r^2) in (0, 1], by log-sum-exp. [N] -> []."""
    doubled = 2 * torch.logsumexp(log_ratios, dim=0) - torch.logsumexp(2 * log_ratios, dim=0)
    return torch.exp(doubled - math.log(log_ratios.numel()))


def weighted(batch: RatioBatch, log_weights: Tensor) -> Tensor:
    """sum_i omega_i A_i log pi(tau_i) with omega_i = exp(log_weights_i) held constant. []."""
    weights = log_weights.detach().exp() * batch.advantages
    return (weights * masked_sum(batch.logprobs, batch.mask)).sum()


def token_weighted(batch: RatioBatch, log_weights: Tensor) -> Tensor:
    """sum_i A_i sum_t w_t log pi(y_t) with w_t = exp(log_weights_t) held constant, [N, T]. []."""
    weights = log_weights.detach().exp() * batch.advantages.unsqueeze(-1)
    return masked_sum(weights * batch.logprobs, batch.mask).sum()
