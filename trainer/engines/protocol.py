"""What a rollout engine must offer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from trainer.loop.rollouts import Rollouts, Weights

Refresh = Callable[[], tuple[Weights, int] | None]
"""Asked between decoding steps: new weights and their version, or None to go on with the present ones."""


class Engine(Protocol):
    """Samples completions from the behaviour weights."""

    version: int
    """Version of the weights that `generate` samples from."""

    def generate(
        self, prompts: Sequence[str], *, samples: int, seed: int, refresh: Refresh | None = None
    ) -> Rollouts:
        """`samples` completions for each prompt, those of a prompt side by side; same seed, same result.

        With `refresh`, responses that are being written continue with the new weights as soon as it gives some, on
        a key-value cache recomputed with them; every token keeps the version that sampled it.

        Raises NonFiniteError when the logits are not finite. The engine is then of no more use, whatever weights it
        is given: blocks of a paged cache that hold NaN reach later requests through attention (0 x NaN is NaN).
        """

    def update_weights(self, weights: Weights, version: int) -> None:
        """Take over the learner's weights and call them `version`."""

    def close(self) -> None:
        """Free what the engine holds."""
