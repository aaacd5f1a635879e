"""Checkpoints: one safetensors file that holds everything a resume needs, written atomically, never pickled.

They are written at synchronizations only, where behaviour and learner weights are the same. Random numbers are
drawn from generators that are seeded anew from (seed, purpose, version), so there is no generator state to keep.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from trainer.errors import ConfigError
from trainer.files import write_atomically
from trainer.loop.learner import Learner

FILE = "checkpoint.safetensors"
_PREVIOUS = "previous_gradient"


@dataclass(frozen=True)
class Progress:
    """Where a run stands at a synchronization."""

    config: str
    """Digest of the run's configuration."""
    update: int
    """Next update to make."""
    metrics_offset: int
    """Bytes of metrics.jsonl that belong to the updates before."""
    timings_offset: int
    held_out_before: float | None


def save_checkpoint(folder: Path, learner: Learner, progress: Progress) -> None:
    """Replace the checkpoint of `folder`."""
    tensors = dict(_named_state(learner))
    if learner.previous_gradient is not None:
        tensors[_PREVIOUS] = learner.previous_gradient
    content = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(folder / FILE, save(content, metadata={"progress": json.dumps(asdict(progress))}))


def load_checkpoint(folder: Path, learner: Learner, *, config: str) -> Progress | None:
    """Restore `learner` in place; None when there is no checkpoint.

    Raises ConfigError when the checkpoint was made with another config or cannot be read.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            progress = Progress(**json.loads(file.metadata()["progress"]))
            if progress.config != config:
                raise ConfigError(
                    f"{path}: made with another configuration; use another folder, or delete this one"
                )
            _restore(learner, {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{path} cannot be read back ({error}); delete the file to start this run anew"
        ) from error
    return progress


def _restore(learner: Learner, tensors: dict[str, Tensor]) -> None:
    previous = tensors.pop(_PREVIOUS, None)
    learner.previous_gradient = None if previous is None else previous.to(learner.parameters[0].device)
    for name, parameter in learner.policy.model.named_parameters():
        if f"step.{name}" not in tensors:
            continue  # never got a gradient, so Adam never made a state for it
        # Adam makes its state at the first step; an explicit one is what the tensors are copied into.
        learner.optimizer.state[parameter] = {
            "step": torch.zeros(()),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
    own = dict(_named_state(learner))
    if own.keys() != tensors.keys():
        raise ValueError(f"its tensors do not fit the model: {sorted(own.keys() ^ tensors.keys())[:3]}")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(tensors[name])


def _named_state(learner: Learner) -> Iterator[tuple[str, Tensor]]:
    """Weights and the optimizer's moments of every trained parameter."""
    for name, parameter in learner.policy.model.named_parameters():
        yield f"model.{name}", parameter
        for key, value in learner.optimizer.state.get(parameter, {}).items():
            yield f"{key}.{name}", value
