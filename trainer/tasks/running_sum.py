"""The embedded task: write the running sums, modulo 10, of a row of digits."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from trainer.tasks.protocol import Example

HELD_OUT_SHARE = 16
"""One prompt in sixteen is held out, by its checksum: the split needs no list and never overlaps."""

FEWEST_DIGITS = 3


class RunningSum:
    """`31415926=` asks for `34590981`. Reward 1 for the exact answer, else 0."""

    reward_floor = 0.0
    full_marks = 1.0

    def __init__(self, digits: int = 8) -> None:
        if not isinstance(digits, int) or digits < FEWEST_DIGITS:
            raise ValueError(
                f"digits = {digits}: give a whole number from {FEWEST_DIGITS} on, fewer leave too few held-out prompts"
            )
        self.digits = digits

    def prompts(self, rng: np.random.Generator, n: int, *, held_out: bool = False) -> list[Example]:
        """Uniform digits among the prompts of the asked split."""
        examples: list[Example] = []
        while len(examples) < n:
            for row in rng.integers(0, 10, size=(n, self.digits)):
                prompt = "".join(map(str, row)) + "="
                if is_held_out(prompt) == held_out:
                    examples.append(Example(prompt, answer(row.tolist())))
        return examples[:n]

    def score(self, completions: Sequence[str], references: Sequence[str]) -> list[float]:
        """Exact match."""
        return [float(text == right) for text, right in zip(completions, references, strict=True)]


def answer(digits: Sequence[int]) -> str:
    """Running sums modulo 10 as a string."""
    return "".join(str(total % 10) for total in accumulate(digits))


def is_held_out(prompt: str) -> bool:
    """Whether `prompt` belongs to the held-out split."""
    return zlib.crc32(prompt.encode()) % HELD_OUT_SHARE == 0
