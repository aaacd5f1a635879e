"""One optimizer update: logprobs of the batch under the learner, surrogate, gradient, step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.algorithms import ESTIMATORS, RatioBatch
from trainer.algorithms.advantages import group_advantages
from trainer.algorithms.aggregation import aggregated
from trainer.algorithms.ratios import masked_sum, trajectory_log_ratios
from trainer.config import TrainerConfig
from trainer.loop.logprobs import has_linear_head, recompute_activations, response_logprobs
from trainer.loop.rollouts import Rollouts
from trainer.models import Policy
from trainer.models.packing import warn_unless_packable

PREVIOUS = "previous_gradient"


@dataclass(frozen=True)
class Step:
    """What one update did."""

    loss: float
    entropy: float
    grad_norm: float
    grad_cosine: float | None
    cap_activation: float
    log_ratios: Tensor
    """[N] log trajectory ratios before the update, on the CPU."""


class Learner:
    """Owns the learner's weights, the optimizer and the previous gradient."""

    def __init__(self, policy: Policy, config: TrainerConfig) -> None:
        """Raises ConfigError when the model cannot recompute activations and the config asks for it."""
        self.policy = policy
        self.config = config
        has_linear_head(policy.model)  # said at the start, not at the first large batch
        if config.share_prompts:
            warn_unless_packable(policy.model)
        if config.gradient_checkpointing:
            recompute_activations(policy.model)
        self._prepare()
        self.parameters = [p for p in policy.model.parameters() if p.requires_grad]
        opt = config.optimizer
        self.optimizer = torch.optim.AdamW(
            self.parameters,
            lr=0.0,
            betas=(opt.beta1, opt.beta2),
            eps=opt.eps,
            weight_decay=opt.weight_decay,
            fused=True,
        )
        self.previous_gradient: Tensor | None = None
        """[parameters] flat gradient of the last update, before clipping."""

    def close(self) -> None:
        """Let other processes go, if there are any."""

    def tensor(self, name: str) -> Tensor:
        """What a checkpoint calls `name`: a weight that is trained, or its optimizer's state.

        `model.NAME`, `step.NAME`, `exp_avg.NAME`, `exp_avg_sq.NAME` for each parameter's NAME; KeyError where the
        optimizer has no state yet. Where processes share the weights, this one's share.
        """
        kind, _, own = name.partition(".")
        parameter = self.policy.model.get_parameter(own)
        found: Tensor = parameter.detach() if kind == "model" else self.optimizer.state[parameter][kind]
        return found

    @property
    def gradient_size(self) -> int:
        """Elements of `previous_gradient` in full."""
        return 0 if self.previous_gradient is None else self.previous_gradient.numel()

    def parts(self, name: str) -> Iterator[Tensor]:
        """The same in full, and `previous_gradient`; the whole is these tensors one after the other."""
        yield self.previous_gradient if name == PREVIOUS else self.tensor(name)  # type: ignore[misc]

    def _prepare(self) -> None:
        """Called when everything about the model is known, before its parameters are counted."""

    def logprobs(self, rollouts: Rollouts) -> Tensor:
        """[N, T] under the present weights, with gradient, see `response_logprobs`."""
        return response_logprobs(self.policy.model, rollouts, self.config)

    def update(self, rollouts: Rollouts, learning_rate: float) -> Step:
        """One `optimizer.step()` on whole groups. A non-finite gradient is reported and not applied."""
        advantages = group_advantages(rollouts.reward, self.config)
        advantages, divisor = aggregated(advantages, rollouts.mask, self.config)
        size = self.config.group_size * (self.config.micro_batch_groups or len(rollouts))
        tokens = int(rollouts.mask.sum())
        parts = [
            self._accumulate(
                rollouts.rows(start, start + size), advantages[start : start + size], divisor, tokens
            )
            for start in range(0, len(rollouts), size)
        ]
        losses, entropies, activations, log_ratios = zip(*parts, strict=True)
        norm, cosine = self._gradient_norm_and_cosine()
        if math.isfinite(norm):
            self._apply(norm, learning_rate)
        self.optimizer.zero_grad(set_to_none=True)  # Rollouts are sampled next, and need the room.
        return Step(
            loss=float(sum(losses)),
            entropy=float(sum(entropies)),
            grad_norm=norm,
            grad_cosine=cosine,
            cap_activation=float(sum(a * len(r) for a, r in zip(activations, log_ratios, strict=True)))
            / len(rollouts),
            log_ratios=torch.cat(log_ratios).cpu(),
        )

    def _accumulate(
        self, rollouts: Rollouts, advantages: Tensor, divisor: int, tokens: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Add the gradient of whole groups; divisor of the loss and number of tokens are those of the full batch."""
        logprobs = self.logprobs(rollouts)
        batch = RatioBatch(logprobs, rollouts.behaviour, rollouts.mask, advantages, self.config.group_size)
        surrogate = ESTIMATORS[self.config.estimator](batch, self.config)
        loss = -surrogate.objective / divisor
        loss.backward()
        entropy = -masked_sum(logprobs.detach(), rollouts.mask).sum() / tokens
        return loss.detach(), entropy, surrogate.activation, trajectory_log_ratios(batch).detach()

    def _gradient_norm_and_cosine(self) -> tuple[float, float | None]:
        gradient = torch.cat([p.grad.flatten() for p in self.parameters if p.grad is not None])
        previous, self.previous_gradient = self.previous_gradient, gradient
        norm = float(gradient.norm())
        if previous is None or previous.shape != gradient.shape:
            return norm, None
        scale = norm * float(previous.norm())
        return norm, float(gradient @ previous) / scale if scale > 0 else 0.0

    def _apply(self, norm: float, learning_rate: float) -> None:
        clip = self.config.grad_clip
        if 0 < clip < norm:
            torch._foreach_mul_([p.grad for p in self.parameters if p.grad is not None], clip / norm)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.step()
