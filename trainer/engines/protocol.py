"""What a rollout engine must offer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from trainer.loop.rollouts import Rollouts


class Engine(Protocol):
    """Samples completions from the behaviour weights."""

    version: int
    """Version of the weights that `generate` samples from."""

    def generate(self, prompts: Sequence[str], *, samples: int, seed: int) -> Rollouts:
        """`samples` completions for each prompt, those of a prompt side by side; same seed, same result."""

    def update_weights(self, model: Any, version: int) -> None:
        """Copy the learner's weights and call them `version`."""

    def close(self) -> None:
        """Free what the engine holds."""
