"""Completions behind one prompt against one row each: logprobs, gradients, and models that cannot be packed."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers

from trainer.config import TrainerConfig
from trainer.loop import logprobs
from trainer.loop.learner import Learner
from trainer.loop.logprobs import recompute_activations, response_logprobs
from trainer.loop.rollouts import Rollouts
from trainer.loop.sequences import PackedRows, PlainRows, rows_of
from trainer.models import Policy, packing
from trainer.models.packing import BLOCKS, DENSE, FLEX, Layout, Way, copies_at_once, warn_unless_packable

V, P, G, L, T = 97, 3, 4, 5, 7
SIZES = {
    "vocab_size": V,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
TOLERANCE = 1e-5
"""Float32 sums in another order; the largest gradients here are about 10."""
PACKED, PLAIN = TrainerConfig(group_size=G), TrainerConfig(group_size=G, share_prompts=False)


def tiny(family: str = "Qwen3", **changes: Any) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**{**SIZES, **changes})
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def rollouts(*, ragged: bool = True, limit: int = T) -> Rollouts:
    generator = torch.Generator().manual_seed(1)
    prompt_mask = torch.ones(P, L, dtype=torch.bool)
    if ragged:
        prompt_mask[0, :2] = False
        prompt_mask[2, :3] = False
    lengths = torch.randint(1, limit + 1, (P * G,), generator=generator)
    lengths[0] = limit
    return Rollouts(
        prompt=torch.randint(V, (P, L), generator=generator).repeat_interleave(G, dim=0),
        prompt_mask=prompt_mask.repeat_interleave(G, dim=0),
        response=torch.randint(V, (P * G, limit), generator=generator),
        mask=torch.arange(limit) < lengths.unsqueeze(-1),
        behaviour=torch.full((P * G, limit), -math.log(V)),  # about what the models with random weights give
        version=torch.zeros(P * G, limit, dtype=torch.int64),
        reward=torch.rand(P * G, generator=generator),
    )


def found(model: Any, batch: Rollouts, config: TrainerConfig) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Logprobs within the mask, and the gradients of their sum weighted by rows."""
    model.zero_grad()
    values = response_logprobs(model, batch, config).masked_fill(~batch.mask, 0.0)
    (values.sum(-1) * torch.linspace(-1, 2, len(batch))).sum().backward()
    return values.detach(), {
        name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None
    }


def assert_equal(
    model: Any, batch: Rollouts, packed: TrainerConfig = PACKED, plain: TrainerConfig = PLAIN
) -> None:
    wanted, gradients = found(model, batch, plain)
    assert isinstance(rows_of(model, batch, plain), PlainRows)
    assert isinstance(rows_of(model, batch, packed), PackedRows)
    values, own = found(model, batch, packed)
    assert torch.allclose(values, wanted, atol=TOLERANCE, rtol=0)
    assert own.keys() == gradients.keys()
    for name, gradient in gradients.items():
        assert float(gradient.abs().max()) > 1e-4 or "k_proj.bias" in name, (
            name
        )  # keys' biases cancel in a softmax
        assert torch.allclose(own[name], gradient, atol=TOLERANCE, rtol=0), name


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("chunked", [False, True])
def test_packed_rows_give_the_same_logprobs_and_gradients(
    monkeypatch: pytest.MonkeyPatch, *, chunked: bool, ragged: bool, temperature: float
) -> None:
    if chunked:
        monkeypatch.setattr(logprobs, "LOGIT_BYTES", 4 * V * 5)  # five tokens a chunk
    change = {"temperature": temperature}
    assert_equal(
        tiny(), rollouts(ragged=ragged), PACKED.model_copy(update=change), PLAIN.model_copy(update=change)
    )


@pytest.mark.parametrize(
    ("family", "way", "changes"),
    [
        ("Llama", BLOCKS, {}),
        ("Qwen2", BLOCKS, {}),
        ("Mistral", BLOCKS, {"sliding_window": None}),
        ("Qwen3Moe", BLOCKS, {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}),
        ("GPT2", BLOCKS, {}),  # absolute positions
        ("OPT", BLOCKS, {"ffn_dim": 48, "word_embed_proj_dim": 32, "max_position_embeddings": 32}),
        ("GPTNeoX", BLOCKS, {}),
        ("GPTJ", DENSE, {"rotary_dim": 4}),  # no attention interface
        ("CodeGen", DENSE, {"rotary_dim": 4}),
    ],
)
def test_families_of_models(family: str, way: Way, changes: dict[str, Any]) -> None:
    model = tiny(family, **changes)
    assert packing.packing(model) is way
    if family == "GPTJ":
        assert isinstance(rows_of(model, rollouts(), PACKED), PackedRows)
    assert_equal(model, rollouts())


@pytest.mark.parametrize("length", [1, 2])
def test_responses_of_a_token_or_two(length: int) -> None:
    assert_equal(tiny(), rollouts(limit=length))


def test_more_keys_than_a_head_is_wide_go_through_torchs_kernel() -> None:
    """With few keys attention is spelt out; here it is not, in the same model."""
    assert_equal(tiny(), rollouts(limit=20))


def test_recomputed_activations() -> None:
    model = tiny()
    packing.packing(model)
    recompute_activations(model)
    change = {"gradient_checkpointing": True}
    assert_equal(model, rollouts(), PACKED.model_copy(update=change), PLAIN)


def test_bfloat16_stays_within_its_rounding() -> None:
    model, batch = tiny(), rollouts()
    exact, gradients = found(model, batch, PLAIN)
    values, own = found(model, batch, PACKED.model_copy(update={"dtype": "bfloat16"}))
    assert torch.allclose(values, exact, atol=0.03)
    for name, gradient in gradients.items():
        assert float((own[name] - gradient).norm()) < 0.05 * float(gradient.norm()) + 1e-3, name


def test_micro_batches_of_an_update_change_no_gradient() -> None:
    def gradient(**changes: Any) -> torch.Tensor:
        config = TrainerConfig(group_size=G, prompts_per_update=P, **changes)
        learner = Learner(Policy(tiny(), None, 0, 0), config)
        learner.update(rollouts(), 0.0)
        assert learner.previous_gradient is not None
        return learner.previous_gradient

    whole = gradient(share_prompts=False)
    assert float(whole.abs().max()) > 1e-3
    for groups in (1, 2, 3):
        assert torch.allclose(gradient(micro_batch_groups=groups), whole, atol=1e-6)


def test_a_prompt_goes_through_the_model_once_a_group() -> None:
    model, batch = tiny(), rollouts()
    packing.packing(model)
    seen: list[torch.Size] = []
    model.base_model.register_forward_pre_hook(
        lambda _, inputs, options: seen.append(options["input_ids"].shape), with_kwargs=True
    )
    found(model, batch, PACKED)
    found(model, batch, PLAIN)
    assert seen == [(P, L + G * (T - 1)), (P * G, L + T - 1)]


def test_rows_that_share_no_prompt_stay_plain() -> None:
    model, batch = tiny(), rollouts()
    other = batch.prompt.clone()
    other[1, -1] = (other[1, -1] + 1) % V
    assert isinstance(rows_of(model, replace(batch, prompt=other), PACKED), PlainRows)
    assert isinstance(rows_of(model, batch.rows(0, G + 1), PACKED), PlainRows)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("Mistral", {"sliding_window": 4}),
        ("Gemma2", {}),  # every other layer slides
        ("Bloom", {}),  # positions come from the mask itself
        ("GPTNeo", {"attention_types": [[["local"], 2]], "num_layers": 2, "window_size": 4}),
    ],
)
def test_models_that_cannot_be_packed_fall_back_with_one_line(family: str, changes: dict[str, Any]) -> None:
    model = tiny(family, **changes)
    usual = model.config._attn_implementation
    with pytest.warns(UserWarning, match="reads the prompt anew") as said:
        warn_unless_packable(model)
    assert len([w for w in said if w.category is UserWarning]) == 1
    assert model.config._attn_implementation == usual
    assert torch.equal(found(model, rollouts(), PACKED)[0], found(model, rollouts(), PLAIN)[0])


def test_nothing_is_said_where_a_model_can() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warn_unless_packable(tiny())


def test_a_model_that_ignores_the_mask_is_found_out() -> None:
    """Completions that see those before them are not taken for packed ones."""
    causal = Way(
        lambda layout: torch.ones(len(layout.segments), len(layout.segments), dtype=torch.bool).tril()[
            None, None
        ],
        interface=False,
    )
    assert not packing._agrees(tiny(), causal)
    assert packing._agrees(tiny(), DENSE)


def test_block_mask_token_by_token() -> None:
    """Two prompts of 2 and 3 tokens, two completions of 2 tokens: every query and key, spelt out."""
    layout = Layout(torch.tensor([[False, True, True], [True, True, True]]), copies=2, length=2)
    lines = {
        0: ["1......", ".1.....", ".11....", ".111...", ".1111..", ".11..1.", ".11..11"],
        1: ["1......", "11.....", "111....", "1111...", "11111..", "111..1.", "111..11"],
    }
    wanted = torch.tensor([[[mark == "1" for mark in line] for line in lines[group]] for group in (0, 1)])
    assert torch.equal(layout.dense_mask()[:, 0], wanted)
    assert layout.positions.tolist() == [[0, 0, 1, 2, 3, 2, 3], [0, 1, 2, 3, 4, 3, 4]]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_flex_attention_sees_the_same_mask() -> None:
    """On a CPU FlexAttention only has a forward pass; there, uncompiled, it gives the logits of plain rows."""
    model = tiny()
    assert packing.packing(model) is BLOCKS  # which leaves the attention of this project in the model
    with torch.compiler.set_stance("force_eager"):
        assert packing._agrees(model, FLEX)


def test_whole_masks_are_only_used_as_far_as_they_pay() -> None:
    model = tiny("GPTJ", rotary_dim=4)
    # Nothing but a long prompt: one row for the whole group. Nothing but long responses: none is packed.
    assert copies_at_once(model, 16, 128, prompt=512, length=8) == 16
    assert copies_at_once(model, 16, 128, prompt=1, length=512) == 1
    between = copies_at_once(model, 16, 128, prompt=64, length=64)
    assert 1 < between < 16


def test_a_group_in_several_rows() -> None:
    model, batch = tiny("GPTJ", rotary_dim=4), rollouts()
    whole, gradients = found(model, batch, PLAIN)
    model.zero_grad()
    rows = PackedRows(batch, DENSE, copies=2)
    values = rows.chosen(torch.log_softmax(rows.forward(model, logits_to_keep=rows.kept).logits, dim=-1))
    values = values.masked_fill(~batch.mask, 0.0)
    (values.sum(-1) * torch.linspace(-1, 2, len(batch))).sum().backward()
    assert torch.allclose(values, whole, atol=TOLERANCE)
    for name, parameter in model.named_parameters():
        assert torch.allclose(parameter.grad, gradients[name], atol=TOLERANCE), name
