"""Batched sampling with a key-value cache through transformers."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trainer.engines.precision import autocast
from trainer.errors import ConfigError
from trainer.loop.rollouts import Rollouts, concatenate
from trainer.models import Policy

SEQUENCES_AT_ONCE = 1024
"""Trajectories that one cache holds: beyond about a thousand the cost per token no longer falls on a CPU."""


class HfEngine:
    """Holds its own copy of the weights, so that the learner may move on while it samples."""

    def __init__(
        self,
        policy: Policy,
        *,
        response_limit: int,
        temperature: float,
        dtype: str,
        share_weights: bool = False,
    ) -> None:
        """`share_weights` samples from the learner's own weights, for probes, instead of from a copy."""
        self._model = (
            policy.model if share_weights else copy.deepcopy(policy.model).requires_grad_(requires_grad=False)
        )
        self._policy = policy
        self._limit = response_limit
        self._temperature = temperature
        self._dtype = dtype
        self.version = 0

    def generate(self, prompts: Sequence[str], *, samples: int, seed: int) -> Rollouts:
        """See `Engine.generate`. Raises ConfigError when a prompt has no tokens."""
        ids, mask = self._encode(prompts)
        generator = torch.Generator(device=ids.device).manual_seed(seed)
        at_once = max(1, SEQUENCES_AT_ONCE // samples)
        parts = [
            self._sample(ids[start : start + at_once], mask[start : start + at_once], samples, generator)
            for start in range(0, len(ids), at_once)
        ]
        return concatenate(parts)

    def update_weights(self, model: Any, version: int) -> None:
        """Copy parameter by parameter; both models are on the same device."""
        with torch.no_grad():
            for own, new in zip(self._model.parameters(), model.parameters(), strict=True):
                own.copy_(new)
        self.version = version

    def close(self) -> None:
        """Nothing to free: the weights go with the object."""

    def _encode(self, prompts: Sequence[str]) -> tuple[Tensor, Tensor]:
        encoded = self._policy.tokenizer(list(prompts), add_special_tokens=False)["input_ids"]
        longest = max(map(len, encoded))
        if not all(encoded):
            raise ConfigError(
                "task: a prompt is empty after tokenization; the model's tokenizer may not fit the task"
            )
        padded = [[self._policy.pad] * (longest - len(row)) + row for row in encoded]
        real = [[False] * (longest - len(row)) + [True] * len(row) for row in encoded]
        device = next(self._model.parameters()).device
        return torch.tensor(padded, device=device), torch.tensor(real, device=device)

    @torch.no_grad()
    def _sample(
        self, prompt: Tensor, prompt_mask: Tensor, samples: int, generator: torch.Generator
    ) -> Rollouts:
        """Prefill each prompt once, then widen the cache to `samples` rows a prompt."""
        padded = not bool(prompt_mask.all())
        output = self._forward(prompt, prompt_mask if padded else None, None)
        cache, logits = output.past_key_values, output.logits[:, -1]
        cache.batch_repeat_interleave(samples)
        logits = logits.repeat_interleave(samples, dim=0)
        prompt, prompt_mask = (
            prompt.repeat_interleave(samples, dim=0),
            prompt_mask.repeat_interleave(samples, dim=0),
        )
        seen = prompt_mask
        running = torch.ones(len(prompt), dtype=torch.bool, device=prompt.device)
        tokens, logprobs, masks = [], [], []
        for step in range(self._limit):
            token, logprob = sample_token(logits, self._temperature, generator)
            tokens.append(token.where(running, self._policy.pad))
            logprobs.append(logprob.where(running, 0.0))
            masks.append(running)
            running = running & (token != self._policy.eos)
            if step + 1 == self._limit or not bool(running.any()):
                break
            seen = torch.cat([seen, masks[-1].unsqueeze(-1)], dim=-1)
            output = self._forward(tokens[-1].unsqueeze(-1), seen if padded else None, cache)
            logits = output.logits[:, -1]
        return self._pack(prompt, prompt_mask, tokens, logprobs, masks)

    def _forward(self, ids: Tensor, mask: Tensor | None, cache: Any) -> Any:
        positions = None
        if mask is not None:
            positions = (mask.long().cumsum(dim=-1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        with autocast(ids.device.type, self._dtype):
            return self._model(
                input_ids=ids,
                attention_mask=None if mask is None else mask.long(),
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )

    def _pack(
        self,
        prompt: Tensor,
        prompt_mask: Tensor,
        tokens: list[Tensor],
        logprobs: list[Tensor],
        masks: list[Tensor],
    ) -> Rollouts:
        """Stack the steps and pad them to the response limit, so that all parts have one shape."""
        missing = self._limit - len(tokens)
        pad = (0, missing)
        return Rollouts(
            prompt=prompt,
            prompt_mask=prompt_mask,
            response=torch.nn.functional.pad(torch.stack(tokens, dim=-1), pad, value=self._policy.pad),
            mask=torch.nn.functional.pad(torch.stack(masks, dim=-1), pad, value=False),
            behaviour=torch.nn.functional.pad(torch.stack(logprobs, dim=-1), pad),
            version=torch.full((len(prompt),), self.version, device=prompt.device),
            reward=torch.full((len(prompt),), float("nan"), device=prompt.device),
        )


def sample_token(logits: Tensor, temperature: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """One token a row and its logprob under the tempered distribution. [N, V] -> [N], [N] float32."""
    logprobs = torch.log_softmax(logits.float() / temperature, dim=-1)
    token = torch.multinomial(logprobs.exp(), 1, generator=generator)
    return token.squeeze(-1), logprobs.gather(-1, token).squeeze(-1)
