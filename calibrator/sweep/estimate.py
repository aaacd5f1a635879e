"""What a study would need, before anything is launched."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from calibrator.study.config import StudyConfig
from calibrator.sweep.design import ProposedRun
from calibrator.sweep.rounds import CONFIRMATION_TRIES, proposals
from trainer.errors import ConfigError
from trainer.models import model_folder

BYTES_PER_PARAMETER = 24
"""float32: weights 4, gradient 4, Adam's moments 8, previous gradient 4, behaviour weights 4."""
LOGIT_COPIES = 3
"""Logits, their log-softmax and the gradient, float32."""
ACTIVATION_BYTES = 34
"""Bytes per token, layer and hidden unit that a transformer keeps for its backward pass in 16 bit without
attention maps (arXiv 2205.05198, section 4.1); twice that in float32."""
LONGEST_HEADER = 100_000_000
"""Bytes; the limit of the safetensors format."""
PROCESS_BYTES = 450 * 2**20
"""A process with torch and transformers loaded. Assumed."""


@dataclass(frozen=True)
class Estimate:
    """Updates, tokens and bytes of a study. `most` counts every planned run at its full length."""

    first_round: list[ProposedRun]
    runs_at_most: int
    updates_at_most: int
    tokens_at_most: int
    """Response tokens generated, every response at its limit."""
    parameters: int
    trial_bytes: int


def estimate(config: StudyConfig) -> Estimate:
    """Exact for the first round, an upper bound for the rest. Raises ConfigError when the model is not usable."""
    first = [run for name in config.sweep.estimators for run in proposals(config, name, [])]
    later = config.sweep.round_size + (len(config.sweep.estimators) - 1) * max(
        1, config.sweep.round_size // 2
    )
    rounds = (config.sweep.rounds - 1) * later
    updates = sum(run.updates for run in first) + rounds * config.longest
    confirmations = CONFIRMATION_TRIES * config.sweep.confirmations
    updates += confirmations * config.advice.horizon
    if config.sweep.max_updates is not None:
        updates = min(updates, config.sweep.max_updates)
    trainer = config.trainer
    parameters = count_parameters(config)
    return Estimate(
        first_round=first,
        runs_at_most=len(first) + rounds + confirmations,
        updates_at_most=updates,
        tokens_at_most=updates * trainer.group_size * trainer.prompts_per_update * trainer.response_limit,
        parameters=parameters,
        trial_bytes=trial_bytes(config, parameters),
    )


def count_parameters(config: StudyConfig) -> int:
    """Parameters of the model's safetensors files, from their headers."""
    total = 0
    for path in sorted(model_folder(config.model).glob("*.safetensors")):
        try:
            with path.open("rb") as file:
                header = json.loads(file.read(min(int.from_bytes(file.read(8), "little"), LONGEST_HEADER)))
            total += sum(
                math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__"
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"model.path: {path} is no safetensors file ({error}); save the model anew"
            ) from error
    return total


def trial_bytes(config: StudyConfig, parameters: int) -> int:
    """Peak memory of one trial: weights, optimizer, activations and logits of one backward pass. Assumed factors."""
    trainer = config.trainer
    groups = trainer.micro_batch_groups or trainer.prompts_per_update
    sequences = groups * trainer.group_size
    path = model_folder(config.model) / "config.json"
    try:
        shape = dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"model.path: {path} holds no JSON object ({error}); save the model anew"
        ) from error
    layers, hidden, vocabulary = (
        int(shape.get(key, 0)) for key in ("num_hidden_layers", "hidden_size", "vocab_size")
    )
    # Prompts are as long as responses here for want of a better guess before any was drawn.
    tokens = sequences * 2 * trainer.response_limit
    activations = tokens * layers * hidden * ACTIVATION_BYTES * (2 if trainer.dtype == "float32" else 1)
    logits = sequences * trainer.response_limit * vocabulary * 4 * LOGIT_COPIES
    return PROCESS_BYTES + parameters * BYTES_PER_PARAMETER + activations + logits


def total_updates(runs: Sequence[ProposedRun]) -> int:
    """Planned updates of `runs`."""
    return sum(run.updates for run in runs)
