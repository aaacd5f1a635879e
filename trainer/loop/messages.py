"""What learner and rollout process say to each other: safetensors with a JSON header, never pickled objects."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from safetensors.torch import load, save

from trainer.errors import ConfigError, EnvironmentFailedError, NonFiniteError, TrainerError
from trainer.loop.rollouts import Rollouts

ERRORS: dict[str, type[TrainerError]] = {
    kind.__name__: kind for kind in (TrainerError, ConfigError, EnvironmentFailedError, NonFiniteError)
}
"""Errors that cross the border between the processes by name."""


@dataclass(frozen=True)
class Batch:
    """The rollouts of one update."""

    update: int
    rollouts: Rollouts
    seconds: dict[str, float]
    """Seconds that the rollout process spent by phase since the batch before."""
    measured: dict[str, Any] = field(default_factory=dict)
    """Fields for the row of the update that were measured when the rollouts were made."""


@dataclass(frozen=True)
class Applied:
    """The rollout process has taken over the weights of this version; their slot is free."""

    version: int


@dataclass(frozen=True)
class Failed:
    """The rollout process ends with this error."""

    kind: str
    message: str

    def error(self) -> Exception:
        """The error to raise in the learner; one that no class stands for is a bug."""
        kind = ERRORS.get(self.kind)
        return (
            RuntimeError(f"the rollout process failed: {self.message}")
            if kind is None
            else kind(self.message)
        )


@dataclass(frozen=True)
class Push:
    """From the learner: weights of `version` lie in `slot`."""

    version: int
    slot: int


Message = Batch | Applied | Failed | Push
_KINDS: dict[str, Any] = {"Batch": Batch, "Applied": Applied, "Failed": Failed, "Push": Push}


def encode(message: Message) -> bytes:
    """One message as safetensors; everything but tensors is JSON in its metadata."""
    content = dict(message.__dict__)
    rollouts = content.pop("rollouts", None)
    tensors = (
        {} if rollouts is None else {name: t.cpu().contiguous() for name, t in rollouts.__dict__.items()}
    )
    return save(tensors, metadata={"kind": type(message).__name__, "content": json.dumps(content)})


def decode(data: bytes) -> Message:
    """Inverse of `encode`; tensors are on the CPU."""
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
    content = json.loads(header["content"])
    tensors = load(data)
    if tensors:
        # Copies lie where vector instructions like it, so that sums are those of rollouts made in this process.
        content["rollouts"] = Rollouts(**{name: tensor.clone() for name, tensor in tensors.items()})
    message: Message = _KINDS[header["kind"]](**content)
    return message
