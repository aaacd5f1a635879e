"""Procedural tasks of the reasoning-gym library, by name."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

import numpy as np

from trainer.errors import ConfigError
from trainer.tasks.framing import Chat, Framing, position
from trainer.tasks.protocol import Example

PREFIX = "reasoning-gym:"
SIZE = 10_000
"""Questions of a dataset when `size` is not given; some datasets make all of them in advance."""
HELD_OUT_SHARE = 1 / 8
MISSES = 2000
"""Draws without one question of the asked split after which there is none: at 1 in 8, a chance of 1e-116."""
REMEMBERED = 4096
"""Entries kept between drawing and scoring."""


class ReasoningGym:
    """A dataset of reasoning-gym with its own difficulty options and its own scorer, partial credit included."""

    reward_floor = 0.0
    full_marks = 1.0

    def __init__(
        self,
        name: str,
        *,
        template: str = "{question}",
        system: str | None = None,
        chat: Chat = "auto",
        **options: Any,
    ) -> None:
        """Raises ConfigError for an unknown name or option, what the dataset itself raises for a wrong value."""
        self._framing = Framing(template, system, chat)
        self._size = options.setdefault("size", SIZE)
        self._dataset = make_dataset(name, options)
        self._name = name
        self._entry = lru_cache(REMEMBERED)(self._dataset.__getitem__)

    def prompts(self, rng: np.random.Generator, n: int, *, held_out: bool = False) -> list[Example]:
        """Uniform draws from the dataset, kept when the checksum of the question lies in the asked split."""
        examples: list[Example] = []
        misses = 0
        while len(examples) < n:
            index = int(rng.integers(self._size))
            entry = self._entry(index)
            if (position(entry["question"]) < HELD_OUT_SHARE) == held_out:
                reference = json.dumps({"index": index, "answer": str(entry["answer"])})
                examples.append(self._framing.example(entry["question"], reference))
                misses = 0
            else:
                misses += 1
            if misses == MISSES:
                raise ConfigError(
                    f"task.options leave {PREFIX}{self._name} too few different questions to hold some out: "
                    "raise its difficulty, or its size"
                )
        return examples

    def score(self, completions: Sequence[str], references: Sequence[str]) -> list[float]:
        """The dataset's own scorer on what stands in `<answer>` tags, or on the whole text without such tags."""
        return [self._score(text, reference) for text, reference in zip(completions, references, strict=True)]

    def _score(self, completion: str, reference: str) -> float:
        from reasoning_gym.utils import extract_answer

        tagged = extract_answer(completion)
        entry = self._entry(json.loads(reference)["index"])
        return float(self._dataset.score_answer(completion.strip() if tagged is None else tagged, entry))


def make_dataset(name: str, options: dict[str, Any]) -> Any:
    """The dataset, its seed ours. Raises ConfigError naming near names, or the options that there are."""
    try:
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise ConfigError(
            f"task.name = {PREFIX + name!r} needs reasoning-gym: pip install 'grpo-calibrator[tasks]' ({error})"
        ) from error
    if name not in DATASETS:
        near = get_close_matches(name, DATASETS, n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(sorted(DATASETS))}"
        raise ConfigError(f"task.name = {PREFIX + name!r}: reasoning-gym has no such dataset; {hint}")
    dataset, configuration = DATASETS[name]
    known = {field.name for field in dataclasses.fields(configuration)} - {"seed"}
    unknown = sorted(set(options) - known)
    if unknown:
        own = ", ".join(sorted({*known, "template", "system", "chat"}))
        raise ConfigError(f"task.options.{unknown[0]}: {PREFIX}{name} has no such option; there are {own}")
    return dataset(configuration(**options, seed=0))
