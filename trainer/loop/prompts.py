"""From a task's examples to the text that the policy continues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trainer.config import TrainerConfig
from trainer.engines.tokens import encode
from trainer.errors import ConfigError
from trainer.models import Policy
from trainer.tasks import Example

SHORTENED = 100
"""Characters of a prompt that a message shows."""


def rendered(
    examples: Sequence[Example], policy: Policy, config: TrainerConfig, *, source: str
) -> list[Example]:
    """The same examples with their prompts as plain text, conversations through the tokenizer's chat template.

    A prompt begins with the start token where the tokenizer would add one; what a chat template made stays as it is.
    Raises ConfigError, its text beginning with `source`, for examples that are none; for a conversation when the
    tokenizer has no chat template, or one that refuses it; and for a prompt of more tokens than the limit.
    """
    for example in examples:
        _check(example, source)
    start = _start(policy.tokenizer)
    ready = [
        replace(example, prompt=_text(example, policy.tokenizer, start), messages=()) for example in examples
    ]
    _check_lengths(ready, policy, config)
    return ready


def token_limit(policy: Policy, config: TrainerConfig) -> tuple[int | None, str]:
    """Most tokens of a prompt, None without a bound, and which key or number sets it."""
    positions = getattr(policy.model.config.get_text_config(), "max_position_embeddings", None)
    room = None if positions is None else positions - config.response_limit
    if config.prompt_limit is not None and (room is None or config.prompt_limit <= room):
        return config.prompt_limit, "trainer.prompt_limit"
    return room, f"the model's {positions} positions less trainer.response_limit = {config.response_limit}"


def _check(example: Example, source: str) -> None:
    strings = isinstance(example, Example) and isinstance(example.reference, str)
    if not strings or not isinstance(example.prompt, str):
        raise ConfigError(f"{source} must return Examples whose prompt and reference are strings")
    if not all(
        isinstance(turn.get("role"), str) and isinstance(turn.get("content"), str)
        for turn in example.messages
    ):
        raise ConfigError(f"{source}: each of messages must hold a role and a content, both strings")


def _start(tokenizer: Any) -> str:
    """What a plain prompt begins with, so that its tokens are those with the tokenizer's start token; often empty."""
    start: str = tokenizer.bos_token or ""
    if tokenizer("")["input_ids"][:1] != [tokenizer.bos_token_id]:
        return ""
    # Some tokenizers mark a first word by a space that they leave out behind the start token's text.
    usual = tokenizer("1")["input_ids"]
    begun = tokenizer(f"{start}1", add_special_tokens=False)["input_ids"]
    return start if begun == usual[: len(begun)] else f"{start} "


def _text(example: Example, tokenizer: Any, start: str) -> str:
    if not example.messages:
        return _begun(example.prompt, start)
    if not tokenizer.chat_template:
        if example.prompt:
            return _begun(example.prompt, start)
        raise ConfigError(
            "the task asks with messages, but the model's tokenizer has no chat template: give model.path an instruct "
            'model, or the task a plain prompt (built-in tasks: task.options.chat = "no")'
        )
    try:
        text: str = tokenizer.apply_chat_template(
            [dict(turn) for turn in example.messages], add_generation_prompt=True, tokenize=False
        )
    except Exception as error:  # Templates are code of the model's makers and raise what they like.
        raise ConfigError(
            f"the tokenizer's chat template refuses {_shortened(example.messages)}: {type(error).__name__}: {error}"
        ) from error
    return text


def _begun(prompt: str, start: str) -> str:
    return prompt if prompt.startswith(start.rstrip()) else start + prompt


def _check_lengths(examples: Sequence[Example], policy: Policy, config: TrainerConfig) -> None:
    limit, why = token_limit(policy, config)
    if limit is None or not examples:
        return
    encoded = encode(policy, [example.prompt for example in examples])
    longest = max(range(len(encoded)), key=lambda index: len(encoded[index]))
    if len(encoded[longest]) > limit:
        raise ConfigError(
            f"the prompt {_shortened(examples[longest].prompt)} has {len(encoded[longest])} tokens, more than {limit} "
            f"({why}): shorten the task's prompts, or make room by that key"
        )


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHORTENED else f"{text[:SHORTENED]}..."
