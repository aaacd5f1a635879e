"""Advantages from verifiable rewards."""

from torch import Tensor

from trainer.config import TrainerConfig


def group_advantages(rewards: Tensor, config: TrainerConfig) -> Tensor:
    """Advantages as the config says: `standardised`, or `centred` as in Dr. GRPO (arXiv 2503.20783). [N] -> [N]."""
    normalised = {"standardised": group_normalised, "centred": group_centred}[config.advantage]
    return normalised(rewards, config.group_size)


def group_normalised(rewards: Tensor, group_size: int) -> Tensor:
    """(R - mean) / std within each group, population std; 0 where all rewards of a group are equal. [N] -> [N].

    NaN marks a trajectory that could not be scored: its advantage is 0, and mean and std are those of the others.
    """
    centred = group_centred(rewards, group_size).view(-1, group_size)
    scored = ~rewards.view(-1, group_size).isnan()
    count = scored.sum(dim=-1, keepdim=True).clamp(min=1)
    std = (centred.square().sum(dim=-1, keepdim=True) / count).sqrt()
    return (centred / std.masked_fill(std == 0, 1.0)).flatten()


def group_centred(rewards: Tensor, group_size: int) -> Tensor:
    """R - mean within each group; 0 where all rewards of a group are equal. [N] -> [N], NaN as above."""
    grouped = rewards.view(-1, group_size)
    centred = grouped - grouped.nanmean(dim=-1, keepdim=True)
    # Equal rewards leave rounding dust in `centred`; dividing by it would invent a signal.
    return centred.masked_fill(grouped.isnan() | ~rewards_differ(grouped), 0.0).flatten()


def rewards_differ(grouped: Tensor) -> Tensor:
    """Whether the scored rewards of each group differ: only then it has advantages. [K, G] -> [K, 1] bool."""
    unscored = grouped.isnan()
    highest = grouped.masked_fill(unscored, -float("inf")).amax(dim=-1, keepdim=True)
    lowest = grouped.masked_fill(unscored, float("inf")).amin(dim=-1, keepdim=True)
    return highest > lowest
