"""Advantages from verifiable rewards."""

from torch import Tensor


def group_normalised(rewards: Tensor, group_size: int) -> Tensor:
    """(R - mean) / std within each group, population std; 0 where all rewards of a group are equal. [N] -> [N].

    NaN marks a trajectory that could not be scored: its advantage is 0, and mean and std are those of the others.
    """
    grouped = rewards.view(-1, group_size)
    scored = ~grouped.isnan()
    centred = (grouped - grouped.nanmean(dim=-1, keepdim=True)).masked_fill(~scored, 0.0)
    count = scored.sum(dim=-1, keepdim=True)
    std = (centred.square().sum(dim=-1, keepdim=True) / count).sqrt()
    # Equal rewards leave rounding dust in `centred`; dividing by it would invent a signal.
    flat = ~rewards_differ(grouped)
    return (centred / std.masked_fill(flat, 1.0)).masked_fill(flat, 0.0).flatten()


def rewards_differ(grouped: Tensor) -> Tensor:
    """Whether the scored rewards of each group differ: only then it has advantages. [K, G] -> [K, 1] bool."""
    unscored = grouped.isnan()
    highest = grouped.masked_fill(unscored, -float("inf")).amax(dim=-1, keepdim=True)
    lowest = grouped.masked_fill(unscored, float("inf")).amin(dim=-1, keepdim=True)
    return highest > lowest
