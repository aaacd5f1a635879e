"""Logprobs in chunks and with recomputed activations against the plain way, and the models that allow neither."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trainer.config import TrainerConfig
from trainer.engines.hf import HfEngine
from trainer.errors import ConfigError
from trainer.loop import logprobs
from trainer.loop.logprobs import has_linear_head, recompute_activations, response_logprobs
from trainer.loop.rollouts import Rollouts
from trainer.models import Policy

V, N, L, T = 97, 6, 5, 7
SIZES = {
    "vocab_size": V,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}


def tiny(family: str = "Qwen3", **changes: Any) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**{**SIZES, **changes})
    return getattr(transformers, f"{family}ForCausalLM")(config).eval()


def opt(**changes: Any) -> Any:
    return tiny("OPT", ffn_dim=48, word_embed_proj_dim=32, max_position_embeddings=32, **changes)


def rollouts(*, ragged: bool = False) -> Rollouts:
    torch.manual_seed(1)
    prompt_mask = torch.ones(N, L, dtype=torch.bool)
    if ragged:
        prompt_mask[::2, :2] = False
    lengths = torch.tensor([T, 1, 3, T, 2, 5])
    mask = torch.arange(T) < lengths.unsqueeze(-1)
    return Rollouts(
        prompt=torch.randint(V, (N, L)),
        prompt_mask=prompt_mask,
        response=torch.randint(V, (N, T)),
        mask=mask,
        behaviour=torch.zeros(N, T),
        version=torch.zeros(N, T, dtype=torch.int64),
        reward=torch.zeros(N),
    )


def found(model: Any, batch: Rollouts, config: TrainerConfig) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Logprobs within the mask, and the gradients of their sum weighted by rows."""
    model.zero_grad()
    values = response_logprobs(model, batch, config).masked_fill(~batch.mask, 0.0)
    (values.sum(-1) * torch.linspace(-1, 2, N)).sum().backward()
    return values.detach(), {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_chunks_change_neither_logprobs_nor_gradients(
    monkeypatch: pytest.MonkeyPatch, *, tied: bool, ragged: bool, temperature: float
) -> None:
    model, batch = tiny(tie_word_embeddings=tied), rollouts(ragged=ragged)
    config = TrainerConfig(temperature=temperature)
    whole, whole_gradients = found(model, batch, config)
    monkeypatch.setattr(logprobs, "LOGIT_BYTES", 4 * V * 4)  # four tokens a chunk
    parts, gradients = found(model, batch, config)
    assert torch.allclose(parts, whole, atol=1e-6)
    for name, gradient in whole_gradients.items():
        assert torch.allclose(gradients[name], gradient, atol=1e-6), name


def test_a_head_with_a_bias_gets_its_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = tiny("Phi", partial_rotary_factor=1.0), rollouts()
    assert has_linear_head(model)
    torch.nn.init.normal_(model.lm_head.bias)
    whole, whole_gradients = found(model, batch, TrainerConfig())
    monkeypatch.setattr(logprobs, "LOGIT_BYTES", 4 * V * 4)
    parts, gradients = found(model, batch, TrainerConfig())
    assert torch.allclose(parts, whole, atol=1e-6)
    assert torch.allclose(gradients["lm_head.bias"], whole_gradients["lm_head.bias"], atol=1e-6)


def test_bfloat16_chunks_stay_within_its_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch, config = tiny(), rollouts(), TrainerConfig(dtype="bfloat16")
    exact, exact_gradients = found(model, batch, TrainerConfig())
    monkeypatch.setattr(logprobs, "LOGIT_BYTES", 4 * V * 4)
    parts, gradients = found(model, batch, config)
    assert torch.allclose(parts, exact, atol=0.03)
    for name, gradient in exact_gradients.items():
        assert gradients[name].dtype == torch.float32
        assert float((gradients[name] - gradient).norm()) < 0.05 * float(gradient.norm()) + 1e-3, name


class LargestTensor(TorchDispatchMode):
    """Elements of the largest tensor that any operation makes."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        made = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        self.elements = max([self.elements, *made])
        return result


def test_no_tensor_is_ever_as_large_as_all_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = tiny(vocab_size=2000), rollouts()
    with LargestTensor() as whole:
        found(model, batch, TrainerConfig())
    monkeypatch.setattr(logprobs, "LOGIT_BYTES", 4 * 2000 * 4)
    with LargestTensor() as parts:
        found(model, batch, TrainerConfig())
    assert whole.elements == N * T * 2000
    assert parts.elements == 2000 * 32  # the head itself


def test_gradients_may_be_asked_for_without_touching_the_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logprobs, "LOGIT_BYTES", 4 * V * 4)
    model = tiny()
    values = response_logprobs(model, rollouts(), TrainerConfig())
    (gradient,) = torch.autograd.grad(values.sum(), [model.lm_head.weight])
    assert float(gradient.norm()) > 0
    assert model.lm_head.weight.grad is None


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("Gemma2", {"final_logit_softcapping": 30.0, "query_pre_attn_scalar": 8}),
        ("Granite", {"logits_scaling": 8.0}),
        ("Cohere", {"logit_scale": 0.06}),
    ],
)
def test_models_that_change_their_logits_afterwards_fall_back_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, family: str, changes: dict[str, Any]
) -> None:
    model, batch = tiny(family, **changes), rollouts()
    whole, _ = found(model, batch, TrainerConfig())
    monkeypatch.setattr(logprobs, "LOGIT_BYTES", 4 * V * 4)
    with pytest.warns(UserWarning, match="all logits at once"):
        again, _ = found(model, batch, TrainerConfig())
    assert torch.equal(again, whole)


def test_models_with_a_plain_head_are_known_as_such() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(has_linear_head(model) for model in (tiny(), tiny("Llama"), tiny("Gemma"), opt()))


@pytest.mark.parametrize("chunked", [False, True])
def test_recomputed_activations_change_no_gradient(monkeypatch: pytest.MonkeyPatch, *, chunked: bool) -> None:
    model, batch = tiny(), rollouts(ragged=True)
    plain, plain_gradients = found(model, batch, TrainerConfig())
    if chunked:
        monkeypatch.setattr(logprobs, "LOGIT_BYTES", 4 * V * 4)
    recompute_activations(model)
    assert has_linear_head(model)
    seen: list[int] = []
    model.model.layers[0].mlp.register_forward_pre_hook(lambda *_: seen.append(1))
    again, gradients = found(model, batch, TrainerConfig(gradient_checkpointing=True))
    assert len(seen) == 2  # once in each direction
    assert torch.allclose(again, plain, atol=1e-6)
    for name, gradient in plain_gradients.items():
        assert torch.allclose(gradients[name], gradient, atol=1e-6), name


def test_sampling_keeps_its_cache_beside_recomputed_activations() -> None:
    model = tiny()

    class Letters:
        def __call__(self, texts: list[str], **_: Any) -> dict[str, list[list[int]]]:
            return {"input_ids": [[ord(letter) % V for letter in text] for text in texts]}

    engine = HfEngine(
        Policy(model, Letters(), 0, 0), response_limit=6, temperature=1.0, dtype="float32", share_weights=True
    )
    before = engine.generate(["abc", "bcd"], samples=2, seed=0)
    recompute_activations(model)
    found(model, rollouts(), TrainerConfig(gradient_checkpointing=True))
    assert torch.equal(engine.generate(["abc", "bcd"], samples=2, seed=0).behaviour, before.behaviour)


def test_layers_with_dropout_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"gradient_checkpointing.*dropout"):
        recompute_activations(opt(dropout=0.5))
    recompute_activations(opt(dropout=0.0))


@pytest.mark.parametrize("chunked", [False, True])
def test_padding_of_the_whole_batch_costs_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, *, chunked: bool
) -> None:
    """Three more columns before every prompt and four after every response: the model never sees them."""
    model, plain = tiny(), rollouts(ragged=True)
    pad = torch.nn.functional.pad
    padded = replace(
        plain,
        prompt=pad(plain.prompt, (3, 0)),
        prompt_mask=pad(plain.prompt_mask, (3, 0)),
        response=pad(plain.response, (0, 4)),
        mask=pad(plain.mask, (0, 4)),
        behaviour=pad(plain.behaviour, (0, 4)),
        version=pad(plain.version, (0, 4), value=-1),
    )
    if chunked:
        monkeypatch.setattr(logprobs, "LOGIT_BYTES", 4 * V * 5)
    seen: list[torch.Size] = []
    model.base_model.register_forward_pre_hook(
        lambda _, inputs, options: seen.append(options["input_ids"].shape), with_kwargs=True
    )
    with torch.no_grad():
        found = response_logprobs(model, padded, TrainerConfig())
        alone = response_logprobs(model, plain, TrainerConfig())
    assert found.shape == padded.mask.shape
    assert torch.equal(found[:, :T][plain.mask], alone[plain.mask])
    assert {shape for shape in seen if shape[0] == N} == {(N, L + T - 1)}
