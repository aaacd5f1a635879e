"""Batched sampling with a key-value cache through transformers."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trainer.engines.precision import autocast, keep_casts, without_gradient
from trainer.engines.protocol import Refresh
from trainer.engines.tokens import encode, pad_left
from trainer.errors import NonFiniteError
from trainer.loop.rollouts import Rollouts, Weights, concatenate
from trainer.models import Policy, trained_weights
from trainer.models.memory import sequences_at_once, shape_of
from trainer.models.packing import packing

Step = tuple[Tensor, Tensor, Tensor, int]
"""Tokens and their logprobs [N], which rows were still being written [N], and the version of the weights."""


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
        """`share_weights` samples from the learner's own weights, for probes, instead of from a copy.

        In bfloat16 weights that require no gradient are cast anew at every token, see `keep_casts`, so a copy's do
        require one. In float32 they do not: torch sums up differently, in the last bit, where they do.
        """
        packing(policy.model)  # sets its attention, on which the bits of a sample depend, once and for all
        self._model = policy.model
        if policy.share is not None:  # this process alone could not even run the model
            self._model = policy.plain_model().requires_grad_(requires_grad=dtype == "bfloat16")
        elif not share_weights:
            self._model = behaviour_copy(policy.model).requires_grad_(requires_grad=dtype == "bfloat16")
        self._shape = shape_of(self._model.config.to_dict())
        self._policy = policy
        self._limit = response_limit
        self._temperature = temperature
        self._dtype = dtype
        self.version = 0

    def generate(
        self, prompts: Sequence[str], *, samples: int, seed: int, refresh: Refresh | None = None
    ) -> Rollouts:
        """See `Engine.generate`. Raises ConfigError when a prompt has no tokens."""
        device = next(self._model.parameters()).device
        ids, mask = (t.to(device) for t in pad_left(encode(self._policy, prompts), self._policy.pad))
        generator = torch.Generator(device=ids.device).manual_seed(seed)
        at_once = max(1, sequences_at_once(self._shape, ids.shape[1] + self._limit, self._dtype) // samples)
        with keep_casts(device.type, self._dtype), without_gradient(self._dtype):
            parts = [
                self._sample(
                    ids[start : start + at_once], mask[start : start + at_once], samples, generator, refresh
                )
                for start in range(0, len(ids), at_once)
            ]
        return concatenate([self._pack(*part) for part in parts])

    def update_weights(self, weights: Weights, version: int) -> None:
        """Copy those that are trained, one by one; the weights may lie on another device."""
        own = dict(self._model.named_parameters())
        weights = weights if self._policy.share is None else self._policy.merged(weights)
        with torch.no_grad():
            for name, weight in weights.items():
                own[name].copy_(weight)
        torch.clear_autocast_cache()  # it may hold the old ones
        self.version = version

    def close(self) -> None:
        """Nothing to free: the weights go with the object."""

    def _sample(
        self,
        prompt: Tensor,
        prompt_mask: Tensor,
        samples: int,
        generator: torch.Generator,
        refresh: Refresh | None,
    ) -> tuple[Tensor, Tensor, list[Step]]:
        """Prefill each prompt once, then widen the cache to `samples` rows a prompt. Returns these prompts, too."""
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
        steps: list[Step] = []
        for position in range(self._limit):
            token, logprob = sample_token(logits, self._temperature, generator)
            token = token.where(running, self._policy.pad)
            steps.append((token, logprob, running, self.version))
            running = running & (token != self._policy.eos)
            if position + 1 == self._limit or not bool(running.any()):
                break
            if padded:
                seen = torch.cat([seen, steps[-1][2].unsqueeze(-1)], dim=-1)
            new = refresh() if refresh is not None else None
            if new is None:
                unread = token.unsqueeze(-1)
            else:  # What the old weights cached is void: read prompt and response so far with the new ones.
                self.update_weights(*new)
                cache, unread = None, torch.cat([prompt, *(step[0].unsqueeze(-1) for step in steps)], dim=-1)
            output = self._forward(unread, seen if padded else None, cache)
            cache, logits = output.past_key_values, output.logits[:, -1]
        return prompt, prompt_mask, steps

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

    def _pack(self, prompt: Tensor, prompt_mask: Tensor, steps: list[Step]) -> Rollouts:
        """Stack the steps and pad them to the response limit, so that all parts have one shape.

        Tensors made in inference mode have no part in a gradient; those returned here are ordinary ones.
        """
        tokens, logprobs, masks = (
            torch.stack(column, dim=-1) for column in zip(*(step[:3] for step in steps), strict=True)
        )
        versions = torch.tensor([step[3] for step in steps], device=prompt.device)
        pad = (0, self._limit - len(steps))
        return Rollouts(
            prompt=prompt.clone(),
            prompt_mask=prompt_mask.clone(),
            response=torch.nn.functional.pad(tokens, pad, value=self._policy.pad),
            mask=torch.nn.functional.pad(masks, pad, value=False),
            behaviour=torch.nn.functional.pad(logprobs.where(masks, 0.0), pad),
            version=torch.nn.functional.pad(versions.where(masks, -1), pad, value=-1),
            reward=torch.full((len(prompt),), float("nan"), device=prompt.device),
        )


def behaviour_copy(model: Any) -> Any:
    """A copy of `model` that shares the memory of the weights that no update changes."""
    trained = trained_weights(model)
    kept = {
        id(weight): torch.nn.Parameter(weight.detach())
        for name, weight in model.named_parameters()
        if name not in trained
    }
    return copy.deepcopy(model, memo=dict(kept))


def sample_token(logits: Tensor, temperature: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """One token a row and its logprob under the tempered distribution. [N, V] -> [N], [N] float32.

    Raises NonFiniteError: nothing can be drawn from NaN, and on a GPU the attempt would take the process down.
    """
    logits = logits.float()
    logprobs = torch.log_softmax(logits if temperature == 1 else logits / temperature, dim=-1)
    if bool(logprobs[:, 0].isnan().any()):  # A NaN or infinite logit makes its whole row NaN.
        raise NonFiniteError("the policy's logits are not finite")
    # The smallest of exponential times with these rates is the one of token v with probability p_v.
    times = torch.empty_like(logprobs).exponential_(generator=generator).log_()
    token = (logprobs - times).argmax(dim=-1, keepdim=True)
    return token.squeeze(-1), logprobs.gather(-1, token).squeeze(-1)
