"""A group in one sequence: its prompt once, then its completions, each of which sees the prompt and itself.

Suffixes: P groups, G completions of a group, L prompt tokens, T tokens of a completion, Q = L + G T tokens of a packed
row. The model's own attention layers run on packed rows; only the function that they call for the attention itself is
another one, found through the attention interface of transformers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from trainer.models.memory import LOGIT_BYTES, shape_of

NAME = "shared_prefix"
"""Of the attention function in the interface of transformers."""
CLOSE = 1e-4
"""Largest difference of logits, as a share of the largest logit, at which packed and plain rows count as equal: far
above the rounding of float32 (1e-6), far below what a completion that sees another one changes."""
WINDOWS = ("sliding_window", "window_size", "attention_window", "attention_chunk_size")
"""Keys of config.json that let a token see only those near it."""
IGNORED = ("sliding_window", "softcap", "s_aux", "position_bias", "attention_chunk_size", "cache")
"""Arguments that some attention layers give and that the function below does not know what to do with."""


class NotPackableError(Exception):
    """The model's attention is none that a block mask describes."""


@dataclass(frozen=True)
class Layout:
    """How the rows are packed."""

    prompt_mask: Tensor
    """[P, L] bool: prompts are padded on the left."""
    copies: int
    """G."""
    length: int
    """T; 0 where only prompts are read."""

    @property
    def positions(self) -> Tensor:
        """[P, Q] int64: completions go on where their prompt ends; those of one group have the same positions."""
        prompt = (self.prompt_mask.long().cumsum(dim=-1) - 1).clamp(min=0)
        completion = prompt[:, -1:] + 1 + torch.arange(self.length, device=prompt.device)
        return torch.cat([prompt, completion.repeat(1, self.copies)], dim=-1)

    @cached_property
    def padded(self) -> bool:
        """Whether any prompt is."""
        return not bool(self.prompt_mask.all())

    @cached_property
    def segments(self) -> Tensor:
        """[Q] int64: 0 in the prompt, 1 to G in the completions."""
        prompt = self.prompt_mask.shape[1]
        order = torch.arange(prompt + self.copies * self.length, device=self.prompt_mask.device)
        # No division by a length of zero: then there are no completions.
        return torch.where(order < prompt, 0, (order - prompt) // max(1, self.length) + 1)

    def visible(self, group: Any, query: Any, key: Any) -> Any:
        """Whether `query` sees `key`: whole prompts and the own completion, nothing later, no padding but itself."""
        segments = self.segments
        real = torch.nn.functional.pad(self.prompt_mask, (0, len(segments) - self.prompt_mask.shape[1]))
        own = (segments[key] == segments[query]) & (segments[key] > 0)
        return (key <= query) & (real[group, key] | own | (key == query))

    def dense_mask(self) -> Tensor:
        """[P, 1, Q, Q] bool: the whole block mask."""
        group, query, key = (
            torch.arange(size, device=self.prompt_mask.device)
            for size in (len(self.prompt_mask), len(self.segments), len(self.segments))
        )
        mask: Tensor = self.visible(group[:, None, None], query[:, None], key)
        return mask.unsqueeze(1)

    @cached_property
    def prompt_block(self) -> Tensor | None:
        """[P, 1, L, L] bool: prompts on themselves; None: causal is all there is to it."""
        if not self.padded:
            return None
        size = self.prompt_mask.shape[1]
        causal = self.prompt_mask.new_ones(size, size).tril()
        itself = torch.eye(size, dtype=torch.bool, device=causal.device)
        return (causal & (self.prompt_mask[:, None, None] | itself)).contiguous()

    @cached_property
    def completion_block(self) -> Tensor:
        """[P G or 1, 1, T, L + T] bool: completions on their prompt and themselves."""
        causal = self.prompt_mask.new_ones(self.length, self.length).tril()
        prompt = self.prompt_mask if self.padded else self.prompt_mask[:1]
        seen = prompt[:, None, None].expand(-1, -1, self.length, -1)
        block = torch.cat([seen, causal.expand(len(prompt), 1, -1, -1)], dim=-1)
        return block.repeat_interleave(self.copies, dim=0) if self.padded else block

    def block_mask(self) -> Any:
        """The mask as FlexAttention wants it."""
        from torch.nn.attention.flex_attention import create_block_mask

        def visible(group: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            found: Tensor = self.visible(group, query, key)
            return found

        groups, tokens = len(self.prompt_mask), len(self.segments)
        return create_block_mask(visible, groups, None, tokens, tokens, device=str(self.prompt_mask.device))


def attend(
    module: Any,
    query: Tensor,  # [P, heads, Q, D]
    key: Tensor,  # [P, key heads, Q, D]
    value: Tensor,
    attention_mask: Any,
    *,
    shared_prefix: Layout | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention of packed rows, or, without a layout, what the model would have called. [P, Q, heads, D].

    The two kinds of blocks of the mask that are not empty are computed one after the other, each by one call of
    torch's scaled dot product attention: prompts on themselves, and every completion on its prompt and itself. The
    cost grows with G T (L + T), as that of plain rows does, not with Q squared.
    """
    from transformers.integrations.flex_attention import flex_attention_forward
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if shared_prefix is None:
        if query.shape[2] == 1 and attention_mask is None and _few_keys(query, key, options):
            one = _spelt_out(query, key, value, None, options.get("scaling"))
            return one.transpose(1, 2), None
        found: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, **options
        )
        return found
    unknown = [name for name in IGNORED if options.get(name) is not None]
    if unknown or options.get("is_causal") is False:
        raise NotPackableError(f"its attention has {unknown[0] if unknown else 'no causal mask'}")
    if isinstance(attention_mask, torch.Tensor):
        return _in_blocks(query, key, value, shared_prefix, options), None
    flexed: tuple[Tensor, Tensor | None] = flex_attention_forward(
        module, query, key, value, attention_mask, **options
    )
    return flexed


def _in_blocks(query: Tensor, key: Tensor, value: Tensor, layout: Layout, options: dict[str, Any]) -> Tensor:
    """[P, Q, heads, D]."""
    groups, heads, tokens, size = query.shape
    prompt = layout.prompt_mask.shape[1]
    # Split, not sliced: the gradient of a slice is as large as the whole, zeros but for the slice.
    (query, own), (key, own_key), (value, own_value) = (
        states.split([prompt, tokens - prompt], dim=2) for states in (query, key, value)
    )
    first = _attention(query, key, value, layout.prompt_block, options).transpose(1, 2)
    if layout.length == 0:
        return first
    found = _attention(
        _own(own, layout).flatten(0, 1),
        _behind_prompt(key, own_key, layout),
        _behind_prompt(value, own_value, layout),
        layout.completion_block,
        options,
    )
    completions = found.view(groups, layout.copies, heads, layout.length, size).transpose(2, 3)
    return torch.cat([first, completions.reshape(groups, -1, heads, size)], dim=1)


def _own(states: Tensor, layout: Layout) -> Tensor:
    """[P, heads, G T, D] -> [P, G, heads, T, D]."""
    groups, heads, _, size = states.shape
    return states.view(groups, heads, layout.copies, layout.length, size).transpose(1, 2)


def _behind_prompt(prompt: Tensor, own: Tensor, layout: Layout) -> Tensor:
    """The prompt before each of its completions. [P, heads, L, D], [P, heads, G T, D] -> [P G, heads, L + T, D]."""
    widened = prompt.unsqueeze(1).expand(-1, layout.copies, -1, -1, -1)
    return torch.cat([widened, _own(own, layout)], dim=3).flatten(0, 1)


def _attention(
    query: Tensor,  # [B, heads, n, D]
    key: Tensor,  # [B, key heads, m, D]
    value: Tensor,
    mask: Tensor | None,
    options: dict[str, Any],
) -> Tensor:
    """Scaled dot product attention, causal without a mask, by what is quickest. [B, heads, n, D]."""
    shared = query.shape[1] // key.shape[1]
    if mask is not None and _few_keys(query, key, options):
        return _spelt_out(query, key, value, mask, options.get("scaling"))
    if shared > 1 and query.is_cuda:  # where heads that share their keys would keep the quick kernels away
        key, value = (x.repeat_interleave(shared, dim=1) for x in (key, value))
    return torch.nn.functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        is_causal=mask is None,
        dropout_p=options.get("dropout", 0.0),
        scale=options.get("scaling"),
        enable_gqa=key.shape[1] != query.shape[1],
    )


def _few_keys(query: Tensor, key: Tensor, options: dict[str, Any]) -> bool:
    """Whether scores take no more room than queries. Then, on a CPU, torch's kernel costs more than it saves."""
    return query.device.type == "cpu" and key.shape[2] <= query.shape[3] and not options.get("dropout")


def _spelt_out(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float | None) -> Tensor:
    """softmax(q k^T scale + mask) v, heads that share their keys in one matrix product. [B, heads, n, D]."""
    batch, heads, tokens, size = query.shape
    shared = heads // key.shape[1]
    rows = query.reshape(-1, shared * tokens, size)
    bias = query.new_zeros(())
    if mask is not None:
        bias = query.new_zeros(mask.shape).masked_fill(~mask, -torch.inf).repeat(1, 1, shared, 1)
        bias = bias.expand(-1, key.shape[1], -1, -1).flatten(0, 1) if len(mask) > 1 else bias[0]
    scores = torch.baddbmm(
        bias, rows, key.flatten(0, 1).transpose(1, 2), alpha=size**-0.5 if scale is None else scale
    )
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(value.dtype)
    return torch.bmm(weights, value.flatten(0, 1)).view(batch, heads, tokens, size)


@dataclass(frozen=True)
class Way:
    """How a model is told the block mask."""

    mask: Callable[[Layout], Any]
    interface: bool
    """Whether its attention layers call `attend`."""

    def __call__(self, model: Any, ids: Tensor, layout: Layout, **options: Any) -> Any:
        """Packed rows [P, Q] through `model`."""
        if self.interface:
            options["shared_prefix"] = layout
        return model(
            input_ids=ids,
            attention_mask=self.mask(layout),
            position_ids=layout.positions,
            use_cache=False,
            **options,
        )


def _additive(layout: Layout) -> Tensor:
    mask = layout.dense_mask()
    return torch.zeros(mask.shape, device=mask.device).masked_fill(~mask, torch.finfo(torch.float32).min)


FLEX = Way(Layout.block_mask, interface=True)
"""FlexAttention: on CUDA; only the blocks that are not empty, and no copies of the prompt's keys."""
BLOCKS = Way(lambda layout: layout.completion_block, interface=True)
"""SDPA on the blocks, see `attend`."""
DENSE = Way(_additive, interface=False)
"""For models whose attention is written in another way, but adds a mask to its scores: Q squared of them."""
_WAYS: WeakKeyDictionary[Any, Way | None] = WeakKeyDictionary()


def packing(model: Any) -> Way | None:
    """The quickest way that leaves the model's logits what they are on plain rows; None if none does.

    Found out once a model, on rows of a few tokens. Sliding windows, which these are too short for, are looked up.
    """
    if model not in _WAYS:
        _WAYS[model] = _find_way(model)
    return _WAYS[model]


def warn_unless_packable(model: Any) -> None:
    """Say it in one line where the learner cannot read a prompt once for its whole group."""
    if packing(model) is None:
        warnings.warn(
            f"{type(model).__name__}: its attention takes no block mask (a sliding window, a state?); the learner "
            "reads the prompt anew for every completion, which takes time",
            stacklevel=2,
        )


def copies_at_once(model: Any, copies: int, rows: int, prompt: int, length: int) -> int:
    """Completions in a row of a whole mask at which the pass costs least; 1: none are packed.

    Multiplications a trajectory, with m completions in a row of q = L + m T tokens: (q A + q^2 B) / m, where A is the
    number of weights that a token meets, and B the work of one entry of the mask in all layers. The masks of all rows
    stay within `LOGIT_BYTES`.
    """
    shape = shape_of(model.config.get_text_config().to_dict())
    embeddings = model.get_input_embeddings().weight
    weights: int = sum(p.numel() for p in model.parameters()) - embeddings.numel()
    entry = 2 * shape.layers * shape.queries

    def cost(m: int) -> float:
        tokens = prompt + m * length
        return (tokens * weights + tokens**2 * entry) / m

    def fits(m: int) -> bool:
        return rows // m * (prompt + m * length) ** 2 * 4 <= LOGIT_BYTES

    return min((m for m in range(1, copies + 1) if copies % m == 0 and (m == 1 or fits(m))), key=cost)


def _find_way(model: Any) -> Way | None:
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"} or any(getattr(config, key, None) for key in WINDOWS):
        return None
    usual = model.config._attn_implementation
    if usual == "sdpa":
        _register()
        model.set_attn_implementation(NAME)
        on_gpu = next(model.parameters()).is_cuda
        for way in (FLEX, BLOCKS) if on_gpu else (BLOCKS,):
            if _agrees(model, way):
                return way
        model.set_attn_implementation(usual)
    return DENSE if _agrees(model, DENSE) else None


def _register() -> None:
    """Make `attend` known. What it does without a layout, and the mask for that, are those of "sdpa"."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)


@torch.no_grad()
def _agrees(model: Any, way: Way) -> bool:
    """Two prompts, one of them padded, with two completions each: packed and plain logits of all that is no padding."""
    weight = model.get_input_embeddings().weight
    groups, copies, prompt, length = 2, 2, 3, 3
    prompts = torch.arange(groups * prompt, device=weight.device).view(groups, prompt) % len(weight)
    completions = (
        torch.arange(groups * copies * length, device=weight.device).view(-1, length) * 5 % len(weight)
    )
    mask = torch.ones_like(prompts, dtype=torch.bool)
    mask[1, 0] = False
    layout = Layout(mask, copies, length)
    ids = torch.cat([prompts, completions.view(groups, -1)], dim=-1)
    rows = torch.cat([prompts.repeat_interleave(copies, dim=0), completions], dim=-1)
    real = torch.cat(
        [mask.repeat_interleave(copies, dim=0), torch.ones_like(completions, dtype=torch.bool)], dim=-1
    )
    positions = (real.long().cumsum(dim=-1) - 1).clamp(min=0)
    plain = model(input_ids=rows, attention_mask=real.long(), position_ids=positions, use_cache=False).logits
    try:
        packed = way(model, ids, layout).logits
    except Exception:  # Whatever a model's own code raises for a mask that it does not know.
        return False
    first = packed[:, :prompt].repeat_interleave(copies, dim=0)
    again = torch.cat([first, packed[:, prompt:].reshape(groups * copies, length, -1)], dim=1)
    gap = (again - plain)[real].abs().max()
    return bool(gap <= CLOSE * plain[real].abs().max())
