"""Trajectories between engine and learner. Suffixes: N trajectories, L prompt tokens, T response tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

Weights = Mapping[str, Tensor]
"""Parameters by their Hugging Face names."""


@dataclass(frozen=True)
class Rollouts:
    """Whole groups, rows of a group side by side. Prompts are padded on the left, responses on the right."""

    prompt: Tensor
    """[N, L] token ids."""
    prompt_mask: Tensor
    """[N, L] bool."""
    response: Tensor
    """[N, T] token ids, the end token included."""
    mask: Tensor
    """[N, T] bool."""
    behaviour: Tensor
    """[N, T] logprobs under the distribution that was sampled from; 0 outside the mask."""
    version: Tensor
    """[N, T] int64: version of the weights that each token was sampled with; -1 outside the mask."""
    reward: Tensor
    """[N] float32; NaN until scored, and for good where scoring was skipped."""

    def __len__(self) -> int:
        return len(self.prompt)

    def rows(self, start: int, stop: int) -> Rollouts:
        """Trajectories start .. stop - 1."""
        return Rollouts(**{field.name: getattr(self, field.name)[start:stop] for field in fields(self)})

    def trimmed(self) -> Rollouts:
        """The same trajectories without the columns that are padding in all of them."""
        first = int(self.prompt_mask.any(dim=0).int().argmax())
        last = int(self.mask.any(dim=0).sum())
        return replace(
            self,
            prompt=self.prompt[:, first:],
            prompt_mask=self.prompt_mask[:, first:],
            response=self.response[:, :last],
            mask=self.mask[:, :last],
            behaviour=self.behaviour[:, :last],
            version=self.version[:, :last],
        )

    def to(self, device: str) -> Rollouts:
        """The same trajectories on `device`."""
        return Rollouts(**{field.name: getattr(self, field.name).to(device) for field in fields(self)})

    def scored(self, rewards: Sequence[float]) -> Rollouts:
        """The same trajectories with their rewards."""
        return replace(self, reward=torch.tensor(rewards, dtype=torch.float32, device=self.prompt.device))

    @property
    def oldest_version(self) -> Tensor:
        """[N] int64: the oldest version in each trajectory, from which its lag is counted."""
        newest = torch.iinfo(self.version.dtype).max
        return self.version.masked_fill(~self.mask, newest).amin(dim=-1)

    def truncated(self, eos: int) -> Tensor:
        """[N] bool: the response hit the limit without an end token."""
        ended = ((self.response == eos) & self.mask).any(dim=-1)
        return ~ended


def concatenate(parts: Sequence[Rollouts]) -> Rollouts:
    """Rows of all parts, which must have the same L and T."""
    return Rollouts(
        **{f.name: torch.cat([getattr(part, f.name) for part in parts]) for f in fields(Rollouts)}
    )
