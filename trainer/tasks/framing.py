"""How the questions of a task become prompts, and which of them are held out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal, get_args

from trainer.errors import ConfigError
from trainer.tasks.protocol import Example

Chat = Literal["auto", "yes", "no"]
PLACE = "{question}"


@dataclass(frozen=True)
class Framing:
    """Options that `jsonl` and `reasoning-gym:NAME` share."""

    template: str = PLACE
    """Text around the question, with one `{question}`; other braces are text."""
    system: str | None = None
    """System prompt; without a chat it stands above the question."""
    chat: Chat = "auto"
    """Whether to render the question as a conversation; auto: when the tokenizer has a chat template."""

    def __post_init__(self) -> None:
        if not isinstance(self.template, str) or self.template.count(PLACE) != 1:
            raise ConfigError(f"task.options.template = {self.template!r}: must hold {PLACE} exactly once")
        if self.chat not in get_args(Chat):
            raise ConfigError(f"task.options.chat = {self.chat!r}: choose one of {', '.join(get_args(Chat))}")
        if not isinstance(self.system, str | None):
            raise ConfigError(f"task.options.system = {self.system!r}: must be text")

    def example(self, question: str, reference: str) -> Example:
        """The question as plain prompt, as conversation, or as both for the tokenizer to decide."""
        text = self.template.replace(PLACE, question)
        turns = [{"role": "system", "content": self.system}] if self.system else []
        return Example(
            prompt="" if self.chat == "yes" else f"{self.system}\n\n{text}" if self.system else text,
            reference=reference,
            messages=() if self.chat == "no" else (*turns, {"role": "user", "content": text}),
        )


def position(question: str) -> float:
    """Where in [0, 1) the checksum of a question lies; equal questions lie at the same place."""
    return int.from_bytes(hashlib.blake2b(question.encode(), digest_size=6).digest()) / 2**48
