"""Advantages from verifiable rewards."""

from torch import Tensor


def group_normalised(rewards: Tensor, group_size: int) -> Tensor:
    """(R - mean) / std within each group, population std; 0 where all rewards of a group are equal. [N] -> [N]."""
    grouped = rewards.view(-1, group_size)
    centred = grouped - grouped.mean(dim=-1, keepdim=True)
    std = centred.square().mean(dim=-1, keepdim=True).sqrt()
    # Equal rewards leave rounding dust in `centred`; dividing by it would invent a signal.
    flat = grouped.amax(dim=-1, keepdim=True) == grouped.amin(dim=-1, keepdim=True)
    return (centred / std.masked_fill(flat, 1.0)).masked_fill(flat, 0.0).flatten()
