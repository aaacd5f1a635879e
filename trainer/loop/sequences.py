"""The rows in which trajectories go through the model: one each, or a group's completions behind one prompt.

Suffixes: N trajectories, L prompt tokens, T response tokens, V vocabulary, H hidden units; R packed rows of m
completions each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from trainer.config import TrainerConfig
from trainer.loop.rollouts import Rollouts
from trainer.models.packing import Layout, Way, copies_at_once, packing


class Rows(Protocol):
    """Prompts and responses, of which the last token is never read."""

    @property
    def kept(self) -> int:
        """Positions at the end of a row that a response token follows."""

    def forward(self, model: Any, **options: Any) -> Any:
        """All rows through `model`, whole or without its head."""

    def chosen(self, logprobs: Tensor) -> Tensor:
        """Logprobs of the response tokens from those of the whole vocabulary at the kept positions. [N, T]."""

    def by_token(self, states: Tensor) -> Tensor:
        """What lies at the position before each response token, from the kept positions. [N, T, H]."""


@dataclass(frozen=True)
class PlainRows:
    """One row a trajectory: [N, L + T - 1]."""

    rollouts: Rollouts

    @property
    def kept(self) -> int:
        return self.rollouts.response.shape[1]

    def forward(self, model: Any, **options: Any) -> Any:
        prompt_mask = self.rollouts.prompt_mask
        mask = positions = None
        if not bool(prompt_mask.all()):
            # Responses are padded on the right, where a causal model never looks back from; only prompts need a mask.
            mask = torch.cat([prompt_mask, torch.ones_like(self.rollouts.mask)], dim=-1)[:, :-1].long()
            positions = (mask.cumsum(dim=-1) - 1).clamp(min=0)
        ids = torch.cat([self.rollouts.prompt, self.rollouts.response], dim=-1)[:, :-1]
        return model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False, **options)

    def chosen(self, logprobs: Tensor) -> Tensor:
        return logprobs.gather(-1, self.rollouts.response.unsqueeze(-1)).squeeze(-1)

    def by_token(self, states: Tensor) -> Tensor:
        return states


@dataclass(frozen=True)
class PackedRows:
    """One row for m completions of a prompt: [R, L + m (T - 1)]."""

    rollouts: Rollouts
    way: Way
    copies: int
    """m."""

    @cached_property
    def layout(self) -> Layout:
        return Layout(
            self.rollouts.prompt_mask[:: self.copies], self.copies, self.rollouts.response.shape[1] - 1
        )

    @property
    def kept(self) -> int:
        return 1 + self.copies * self.layout.length

    def forward(self, model: Any, **options: Any) -> Any:
        prompt = self.rollouts.prompt[:: self.copies]
        completions = self.rollouts.response[:, :-1].reshape(len(prompt), -1)
        return self.way(model, torch.cat([prompt, completions], dim=-1), self.layout, **options)

    def chosen(self, logprobs: Tensor) -> Tensor:
        # The last token of a prompt stands before the first of all of its completions.
        first = logprobs[:, 0].gather(-1, self.rollouts.response[:, 0].view(-1, self.copies)).view(-1, 1)
        after = self.rollouts.response[:, 1:]
        others = logprobs[:, 1:].gather(-1, after.reshape(len(logprobs), -1, 1)).view(after.shape)
        return torch.cat([first, others], dim=-1)

    def by_token(self, states: Tensor) -> Tensor:
        first = states[:, :1].expand(-1, self.copies, -1).unsqueeze(2)
        others = states[:, 1:].unflatten(1, (self.copies, self.layout.length))
        return torch.cat([first, others], dim=2).flatten(0, 1)


def rows_of(model: Any, rollouts: Rollouts, config: TrainerConfig) -> Rows:
    """Packed rows where groups share their prompt and the model can; plain ones elsewhere."""
    copies = config.group_size
    if not config.share_prompts or not _grouped(rollouts, copies):
        return PlainRows(rollouts)
    way = packing(model)
    if way is None:
        return PlainRows(rollouts)
    if not way.interface:
        sizes = rollouts.prompt.shape[1], rollouts.response.shape[1] - 1
        copies = copies_at_once(model, copies, len(rollouts), *sizes)
    return PlainRows(rollouts) if copies == 1 else PackedRows(rollouts, way, copies)


def _grouped(rollouts: Rollouts, size: int) -> bool:
    """Whether every `size` rows have one prompt."""
    if len(rollouts) % size:
        return False
    return all(
        bool((x.view(-1, size, x.shape[1]) == x[::size].unsqueeze(1)).all())
        for x in (rollouts.prompt, rollouts.prompt_mask)
    )
