"""What a task must offer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

Message = Mapping[str, str]
"""One turn of a conversation: `{"role": "user", "content": "..."}`."""


@dataclass(frozen=True)
class Example:
    """A question and what its answer is scored against."""

    prompt: str = ""
    """Text that the policy continues, as it is."""
    reference: str = ""
    """Handed back to `score` beside each completion; not shown to the policy."""
    messages: Sequence[Message] = ()
    """A conversation, rendered with the tokenizer's chat template. With `prompt` beside it, a tokenizer without a
    template takes the prompt; without `prompt`, a template is required."""


@dataclass(frozen=True)
class Unscored:
    """What `score` may return in the place of a reward that it cannot tell: never a silent zero."""

    reason: str


class Task(Protocol):
    """Prompts with verifiable rewards. Held-out prompts are never returned for training.

    A task that sets `keeps_time = True` applies `task.scoring_timeout` to each completion itself, and a task with a
    `close` method may be closed when nothing is to be scored any more.
    """

    reward_floor: float
    """What a policy that knows nothing scores: collapse is a fall towards it. No reward is below."""
    full_marks: float
    """Largest reward of a completion."""

    def prompts(self, rng: np.random.Generator, n: int, *, held_out: bool = False) -> list[Example]:
        """Draw `n` examples; the same generator state gives the same examples."""

    def score(self, completions: Sequence[str], references: Sequence[str]) -> Sequence[float | Unscored]:
        """One finite reward for each completion (text without special tokens), each independent of the others."""
