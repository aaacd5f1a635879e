"""Prompts to token ids and sampled tokens to rollouts, alike for every engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.errors import ConfigError, NonFiniteError
from trainer.loop.rollouts import Rollouts
from trainer.models import Policy


@dataclass(frozen=True)
class Completion:
    """One sampled response, the end token included; the three lists are of one length."""

    tokens: Sequence[int]
    logprobs: Sequence[float]
    """Of the distribution that was sampled from."""
    versions: Sequence[int]


def encode(policy: Policy, prompts: Sequence[str]) -> list[list[int]]:
    """Token ids of each prompt. Raises ConfigError when a prompt has none.

    No special tokens are added: a rendered prompt holds them as text (see trainer.loop.prompts).
    """
    encoded: list[list[int]] = policy.tokenizer(list(prompts), add_special_tokens=False)["input_ids"]
    if not all(encoded):
        raise ConfigError(
            "task: a prompt is empty after tokenization; the model's tokenizer may not fit the task"
        )
    return encoded


def pad_left(rows: Sequence[Sequence[int]], pad: int) -> tuple[Tensor, Tensor]:
    """[N, L] token ids and [N, L] bool mask of the real ones, on the CPU."""
    longest = max(map(len, rows))
    ids = [[pad] * (longest - len(row)) + list(row) for row in rows]
    real = [[False] * (longest - len(row)) + [True] * len(row) for row in rows]
    return torch.tensor(ids), torch.tensor(real)


def pack(
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Completion],
    *,
    pad: int,
    limit: int,
    device: torch.device,
) -> Rollouts:
    """Rollouts of `completions`, which are whole groups of `prompts` in order; T is `limit`.

    Raises NonFiniteError when a logprob is no number.
    """
    samples = len(completions) // len(prompts)
    ids, real = pad_left(prompts, pad)
    shape = (len(completions), limit)
    response = torch.full(shape, pad, dtype=torch.long)
    mask = torch.zeros(shape, dtype=torch.bool)
    behaviour = torch.zeros(shape)
    version = torch.full(shape, -1, dtype=torch.long)
    for row, completion in enumerate(completions):
        length = len(completion.tokens)
        response[row, :length] = torch.tensor(completion.tokens)
        mask[row, :length] = True
        behaviour[row, :length] = torch.tensor(completion.logprobs)
        version[row, :length] = torch.tensor(completion.versions)
    if not bool(behaviour.isfinite().all()):
        raise NonFiniteError("the policy's logits are not finite")
    return Rollouts(
        prompt=ids.repeat_interleave(samples, dim=0).to(device),
        prompt_mask=real.repeat_interleave(samples, dim=0).to(device),
        response=response.to(device),
        mask=mask.to(device),
        behaviour=behaviour.to(device),
        version=version.to(device),
        reward=torch.full((len(completions),), float("nan"), device=device),
    )
