"""LoRA: what is trained, what engines get, what is saved, and that all of it is one and the same policy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from trainer.config import LoraConfig, ModelConfig
from trainer.engines.hf import HfEngine, behaviour_copy
from trainer.errors import ConfigError
from trainer.loop.logprobs import has_linear_head
from trainer.models import Policy, load_policy, save_policy, trained_weights
from trainer.models.adapters import add_adapters, is_adapter, merged
from trainer.models.memory import adapter_parameters, shape_of
from trainer.models.packing import packing

LORA = LoraConfig(rank=4, alpha=8.0)
ROUNDING = 2e-5
"""Float32: logits of about 5, sums of about 100 terms in another order."""


def adapted(config: ModelConfig | None = None, lora: LoraConfig = LORA, seed: int = 0) -> Policy:
    """A policy whose adapters have been trained: B is no longer zero."""
    policy = load_policy(config or ModelConfig(), device="cpu", lora=lora, seed=seed)
    train(policy.model)
    return policy


def train(model: Any) -> None:
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in trained_weights(model).values():
            weight.add_(0.05 * torch.randn(weight.shape, generator=random))


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(torch.arange(24).view(2, 12) % 13).logits
    return found


def test_new_adapters_change_nothing_and_are_all_that_is_trained() -> None:
    plain, own = (load_policy(ModelConfig(), device="cpu", lora=lora).model for lora in (None, LORA))
    assert torch.equal(logits(plain), logits(own))
    assert all(p.requires_grad == is_adapter(name) for name, p in own.named_parameters())
    assert set(trained_weights(own)) == {n for n, _ in own.named_parameters() if is_adapter(n)}
    assert len(trained_weights(own)) == 2 * 7 * 2  # layers, linear layers in each, A and B
    assert sum(w.numel() for w in trained_weights(own).values()) == adapter_parameters(
        LORA, shape_of(own.config.to_dict())
    )


def test_the_seed_decides_the_first_values() -> None:
    a, b, c = (load_policy(ModelConfig(), device="cpu", lora=LORA, seed=s).model for s in (0, 0, 1))
    first, again, other = (trained_weights(model) for model in (a, b, c))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_packing_and_chunked_logprobs_still_work() -> None:
    model = adapted().model
    assert has_linear_head(model)
    assert packing(model) is not None


def test_merged_weights_are_the_same_policy_and_the_learners_stay_what_they_are() -> None:
    policy = adapted()
    before = {name: weight.clone() for name, weight in policy.model.named_parameters()}
    plain = load_policy(ModelConfig(), device="cpu").model
    weights = merged(policy.model, trained_weights(policy.model))
    assert list(weights) == [name for name, _ in plain.named_parameters()]
    unchanged = logits(plain)
    with torch.no_grad():
        for name, own in plain.named_parameters():
            own.copy_(weights[name])
    assert (logits(plain) - logits(policy.model)).abs().max() < ROUNDING
    assert (logits(plain) - unchanged).abs().max() > 100 * ROUNDING
    assert all(torch.equal(before[name], weight) for name, weight in policy.model.named_parameters())


def test_weights_of_a_model_without_adapters_are_handed_on_as_they_are() -> None:
    model = load_policy(ModelConfig(), device="cpu").model
    weights = trained_weights(model)
    assert merged(model, weights) is weights
    assert Policy(model, None, 0, 0).plain_model() is model


def test_a_saved_policy_is_a_plain_folder(tmp_path: Path) -> None:
    policy = adapted()
    save_policy(policy, tmp_path)
    again = load_policy(ModelConfig(path=str(tmp_path)), device="cpu").model
    assert not any("lora" in name or "base_layer" in name for name, _ in again.named_parameters())
    assert (logits(again) - logits(policy.model)).abs().max() < ROUNDING


def test_tied_embeddings_stay_tied_when_merged(tmp_path: Path, make_model: Callable[..., Path]) -> None:
    policy = adapted(ModelConfig(path=str(make_model(tmp_path / "model", tie_word_embeddings=True))))
    save_policy(policy, tmp_path / "saved")
    again = load_policy(ModelConfig(path=str(tmp_path / "saved")), device="cpu").model
    assert again.lm_head.weight is again.model.embed_tokens.weight
    assert (logits(again) - logits(policy.model)).abs().max() < ROUNDING


def test_layers_that_hold_their_weights_transposed_are_merged_as_well() -> None:
    torch.manual_seed(0)
    model: Any = GPT2LMHeadModel(GPT2Config(vocab_size=16, n_positions=16, n_embd=16, n_layer=1, n_head=2))
    add_adapters(model.eval(), LORA, seed=0)
    train(model)
    assert (logits(Policy(model, None, 0, 0).plain_model()) - logits(model)).abs().max() < ROUNDING


def test_the_engine_keeps_adapters_of_its_own_and_shares_the_rest() -> None:
    policy = adapted()
    own, copy = (dict(m.named_parameters()) for m in (policy.model, behaviour_copy(policy.model)))
    for name in own:
        assert (own[name].data_ptr() == copy[name].data_ptr()) != is_adapter(name), name
    engine = HfEngine(policy, response_limit=4, temperature=1.0, dtype="float32")
    prompts = ["12345678="] * 4
    before = engine.generate(prompts, samples=4, seed=0)
    with torch.no_grad():
        for weight in trained_weights(policy.model).values():
            weight.mul_(3)
    assert torch.equal(before.behaviour, engine.generate(prompts, samples=4, seed=0).behaviour)
    engine.update_weights(trained_weights(policy.model), 1)
    assert not torch.equal(before.behaviour, engine.generate(prompts, samples=4, seed=0).behaviour)


@pytest.mark.parametrize("targets", [("no_such",), ("embed_tokens", "q_proj")])
def test_what_is_no_linear_layer_is_refused_by_name(targets: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=r"trainer\.lora\.target_modules"):
        load_policy(ModelConfig(), device="cpu", lora=LoraConfig(target_modules=targets))


def test_layers_may_be_chosen() -> None:
    model = load_policy(ModelConfig(), device="cpu", lora=LoraConfig(target_modules=("q_proj",))).model
    assert {name.split(".")[4] for name in trained_weights(model)} == {"q_proj"}
