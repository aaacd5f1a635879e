"""Logprobs of response tokens under the learner, so that [N, T, V] is never materialised when it would be large.

Suffixes: N trajectories, T response tokens, V vocabulary, H hidden units, n response tokens of all trajectories.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from trainer.config import TrainerConfig
from trainer.engines.precision import autocast
from trainer.errors import ConfigError
from trainer.loop.rollouts import Rollouts
from trainer.loop.sequences import rows_of
from trainer.models.memory import LOGIT_BYTES

_LINEAR_HEADS: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def response_logprobs(model: Any, rollouts: Rollouts, config: TrainerConfig) -> Tensor:
    """Logprobs of the response tokens under `model` and the sampling temperature. [N, T] float32, with gradient.

    Columns that are padding in all rows are left out of the computation: a batch is as long as its longest. Logits
    that fit into `LOGIT_BYTES` are made at once, others in chunks of that size, of response tokens only, and made
    again in the backward pass. What lies outside the mask means nothing.
    """
    limit = rollouts.response.shape[1]
    rollouts = rollouts.trimmed()
    found = _response_logprobs(model, rollouts, config)
    return torch.nn.functional.pad(found, (0, limit - found.shape[1]))


def _response_logprobs(model: Any, rollouts: Rollouts, config: TrainerConfig) -> Tensor:
    head, rows = model.get_output_embeddings(), rows_of(model, rollouts, config)
    vocabulary = model.get_input_embeddings().weight.shape[0]
    small = rollouts.response.numel() * vocabulary * 4 <= LOGIT_BYTES
    if small or not has_linear_head(model):
        with _recomputed_layers(model, config), autocast(rollouts.prompt.device.type, config.dtype):
            logits = rows.forward(model, logits_to_keep=rows.kept).logits.float()
        if config.temperature != 1:
            logits = logits / config.temperature
        return rows.chosen(torch.log_softmax(logits, dim=-1))
    with _recomputed_layers(model, config), autocast(rollouts.prompt.device.type, config.dtype):
        states = rows.forward(model.base_model).last_hidden_state
    states = rows.by_token(states[:, -rows.kept :])[rollouts.mask]
    tokens = rollouts.response[rollouts.mask]
    precision = torch.bfloat16 if config.dtype == "bfloat16" else torch.float32
    found: Tensor = _ChunkedLogprobs.apply(
        states, head.weight, head.bias, tokens, config.temperature, precision
    )
    return found.new_zeros(rollouts.mask.shape).masked_scatter(rollouts.mask, found)


def has_linear_head(model: Any) -> bool:
    """Whether the logits are the output of a linear layer on the last hidden states, with nothing after it.

    Found out once a model: a forward pass shows what enters the layer, and whether what leaves it (here replaced by
    large numbers, so that a soft cap or a scale would show) arrives as logits.
    """
    if model not in _LINEAR_HEADS:
        _LINEAR_HEADS[model] = _probe_head(model)
        if not _LINEAR_HEADS[model]:
            warnings.warn(
                f"{type(model).__name__}: its logits are not a linear layer of its hidden states (a cap, a scale?); "
                "logprobs are computed from all logits at once, which takes memory",
                stacklevel=2,
            )
    return _LINEAR_HEADS[model]


def recompute_activations(model: Any) -> None:
    """Prepare `model` for gradient checkpointing, which `response_logprobs` then does where the config says so.

    Raises ConfigError when the model has none, or when its layers drop units out at random: in training mode, which
    checkpointing needs, its logprobs would not be those that the engine samples from.
    """
    key = "trainer.gradient_checkpointing"
    if not getattr(model, "supports_gradient_checkpointing", False) or not checkpointed_layers(model):
        raise ConfigError(f"{key}: {type(model).__name__} has no gradient checkpointing; set it to false")
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    ids = _some_ids(model)
    with torch.no_grad():
        plain = model(input_ids=ids, use_cache=False).logits
        with _training(checkpointed_layers(model)):
            trained = model(input_ids=ids, use_cache=False).logits
    if not torch.allclose(plain, trained, rtol=1e-4, atol=1e-5):
        raise ConfigError(
            f"{key}: the layers of {type(model).__name__} use dropout; set it to 0 in config.json"
        )


class _ChunkedLogprobs(torch.autograd.Function):
    """log softmax(states W^T + b, tempered) at `tokens`, one chunk of logits alive at a time.

    The gradient of the weights is summed in float32 over the chunks, whatever the precision of the products.
    """

    @staticmethod
    def forward(  # noqa: PLR0917 (torch passes them by position)
        ctx: Any,
        states: Tensor,  # [n, H]
        weight: Tensor,  # [V, H]
        bias: Tensor | None,  # [V]
        tokens: Tensor,  # [n]
        temperature: float,
        precision: torch.dtype,
    ) -> Tensor:  # [n] float32
        ctx.temperature, ctx.precision = temperature, precision
        weight_, bias_ = weight.to(precision), None if bias is None else bias.to(precision)
        normaliser = torch.empty(len(states), dtype=torch.float32, device=states.device)
        logprobs = torch.empty_like(normaliser)
        for part in _chunks(len(states), len(weight)):
            logits = _tempered(states[part].to(precision), weight_, bias_, temperature)
            logprobs[part] = logits.gather(-1, tokens[part].unsqueeze(-1)).squeeze(-1)
            largest = logits.amax(dim=-1, keepdim=True)
            normaliser[part] = logits.sub_(largest).exp_().sum(dim=-1).log_() + largest.squeeze(-1)
        ctx.save_for_backward(states, weight, bias, tokens, normaliser)
        return logprobs.sub_(normaliser)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        states, weight, bias, tokens, normaliser = ctx.saved_tensors
        incoming, precision = gradients[0] / ctx.temperature, ctx.precision
        weight_, bias_ = weight.to(precision), None if bias is None else bias.to(precision)
        to_states = torch.empty_like(states)
        to_weight = torch.zeros_like(weight, dtype=torch.float32) if ctx.needs_input_grad[1] else None
        to_bias = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
        for part in _chunks(len(states), len(weight)):
            inputs, outer = states[part].to(precision), incoming[part].unsqueeze(-1)
            logits = _tempered(inputs, weight_, bias_, ctx.temperature)
            # d logprob(token) / d logits = [token] - softmax
            slope = logits.sub_(normaliser[part].unsqueeze(-1)).exp_().mul_(-outer)
            slope.scatter_add_(-1, tokens[part].unsqueeze(-1), outer)
            if to_bias is not None:
                to_bias += slope.sum(dim=0)
            slope = slope.to(precision)
            to_states[part] = (slope @ weight_).to(states.dtype)
            if to_weight is not None:
                _add_product(to_weight, slope.T, inputs)
        return to_states, to_weight, to_bias, None, None, None


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += left @ right, without a copy of the size of `total` where the precisions are the same."""
    if left.dtype == total.dtype:
        total.addmm_(left, right)
    else:
        total += left @ right


def _tempered(states: Tensor, weight: Tensor, bias: Tensor | None, temperature: float) -> Tensor:
    logits = torch.nn.functional.linear(states, weight, bias).float()
    return logits if temperature == 1 else logits.div_(temperature)


def _chunks(tokens: int, vocabulary: int) -> Iterator[slice]:
    size = max(1, LOGIT_BYTES // (4 * vocabulary))
    return (slice(start, start + size) for start in range(0, tokens, size))


@torch.no_grad()
def _probe_head(model: Any) -> bool:
    head, ids = model.get_output_embeddings(), _some_ids(model)
    if not isinstance(head, torch.nn.Linear):
        return False
    entered: list[Tensor] = []

    def replace(module: Any, inputs: tuple[Tensor], output: Tensor) -> Tensor:
        entered.append(inputs[0])
        return torch.linspace(-100, 100, output.shape[-1], device=output.device).expand_as(output)

    hook = head.register_forward_hook(replace)
    try:
        logits = model(input_ids=ids, use_cache=False).logits
    finally:
        hook.remove()
    wanted = torch.linspace(-100, 100, logits.shape[-1], device=logits.device).expand_as(logits)
    states = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
    same_input = len(entered) == 1 and entered[0].shape == states.shape
    return same_input and torch.allclose(entered[0], states, rtol=1e-4, atol=1e-5) and logits.equal(wanted)


def _some_ids(model: Any) -> Tensor:
    weight = model.get_input_embeddings().weight
    return torch.arange(min(4, len(weight)), device=weight.device).unsqueeze(0)


@contextmanager
def _recomputed_layers(model: Any, config: TrainerConfig) -> Iterator[None]:
    """Layers checkpoint only in training mode, and in it they refuse a cache: so it lasts for this forward pass."""
    with _training(
        checkpointed_layers(model) if config.gradient_checkpointing and torch.is_grad_enabled() else []
    ):
        yield


@contextmanager
def _training(layers: list[Any]) -> Iterator[None]:
    """Only the layers themselves, not the modules in them: these would drop units out."""
    for layer in layers:
        layer.training = True
    try:
        yield
    finally:
        for layer in layers:
            layer.training = False


def checkpointed_layers(model: Any) -> list[Any]:
    """Decoder layers that can recompute their activations, from first to last."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
