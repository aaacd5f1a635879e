"""What a task must offer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass(frozen=True)
class Example:
    prompt: str
    reference: str


class Task(Protocol):
    """Prompts with verifiable rewards. Held-out prompts are never returned for training."""

    reward_floor: float
    """What a policy that knows nothing scores: collapse is a fall towards it."""
    full_marks: float
    """Largest reward of a completion."""

    def prompts(self, rng: np.random.Generator, n: int, *, held_out: bool = False) -> list[Example]:
        """Draw `n` examples; the same generator state gives the same examples."""

    def score(self, completions: Sequence[str], references: Sequence[str]) -> list[float]:
        """One finite reward for each completion (text without special tokens)."""
