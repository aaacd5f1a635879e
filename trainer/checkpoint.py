"""Checkpoints: safetensors files that hold everything a resume needs, written atomically, never pickled.

One file a checkpoint, named by the next update; where the run stands is JSON in the file's metadata, so that weights
and progress cannot come apart. They are written at synchronizations, where behaviour and learner weights are the
same, and by the schedule `overlap` wherever its rollout process fails: a new one starts from the learner's weights.
Random numbers are drawn from generators that are seeded anew from (seed, purpose, version), so there is no generator
state to keep.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from trainer.distributed.shards import local, span
from trainer.errors import ConfigError
from trainer.files import replacing
from trainer.loop.learner import PREVIOUS, Learner
from trainer.models.adapters import trained_parameters
from trainer.tensorfile import Entry, write_tensors

PATTERN = "checkpoint-*.safetensors"
_UNREADABLE = (SafetensorError, KeyError, TypeError, ValueError, OSError)


@dataclass(frozen=True)
class Progress:
    """Where a run stands."""

    config: str
    """Digest of the run's configuration."""
    update: int
    """Next update to make."""
    metrics_offset: int
    """Bytes of metrics.jsonl that belong to the updates before."""
    timings_offset: int
    held_out_before: float | None
    base: str | None = None
    """Digest of the model that adapters were trained on; None where all weights are trained, and all are here."""

    def __post_init__(self) -> None:
        counts = (self.update, self.metrics_offset, self.timings_offset)
        if not all(isinstance(count, int) and count >= 0 for count in counts):
            raise ValueError(f"its progress holds {counts}, which are no counts")


def checkpoint_path(folder: Path, update: int) -> Path:
    """The checkpoint that was written before `update`."""
    return folder / f"checkpoint-{update:06d}.safetensors"


def checkpoints(folder: Path) -> list[Path]:
    """Checkpoints of `folder`, oldest first."""
    return sorted((path for path in folder.glob(PATTERN) if _update(path) is not None), key=_key)


def save_checkpoint(folder: Path, learner: Learner, progress: Progress, *, keep: int = 1) -> None:
    """Write the checkpoint of `progress.update`; when it is safely on disk, all but the newest `keep` are removed.

    Raises OSError when the disk is full or not writable; the checkpoints before stay.
    """
    path = checkpoint_path(folder, progress.update)
    _remove_unfinished(folder)
    with replacing(path) as beside:
        write_tensors(beside, list(_entries(learner)), {"progress": json.dumps(asdict(progress))})
    _sync_folder(folder)
    # Later ones are left over from before a fallback to an older checkpoint: nothing could be read from them.
    kept = [other for other in checkpoints(folder) if _key(other) <= progress.update][-keep:]
    for other in checkpoints(folder):
        if other not in kept:
            other.unlink()


def load_checkpoint(
    folder: Path, learner: Learner, *, config: str, base: str | None = None
) -> Progress | None:
    """Restore `learner` in place from the newest checkpoint that can be read; None when there is no checkpoint.

    `base` is the digest of the model, where adapters are trained: only these are in the checkpoint.

    Raises ConfigError when that one was made with another config or model, or none can be read.
    """
    found = checkpoints(folder)
    for path in reversed(found):
        try:
            with safe_open(path, framework="pt", device="cpu") as file:
                progress = Progress(**json.loads(file.metadata()["progress"]))
                if progress.config != config:
                    raise ConfigError(
                        f"{path}: made with another configuration; use another folder, or delete this one"
                    )
                if progress.base != base:
                    raise ConfigError(
                        f"{path}: its adapters were trained on other weights than model.path has now; put those back, "
                        "or use another folder"
                    )
                _restore(learner, file)
                return progress
        except _UNREADABLE as error:
            if path == found[0]:
                others = ", nor can the later ones; delete them" if len(found) > 1 else "; delete the file"
                raise ConfigError(
                    f"{path} cannot be read back ({error}){others} to start this run anew"
                ) from error
            print(f"warning: {path} cannot be read back ({error}); trying the one before", file=sys.stderr)
    return None


def remove_checkpoints(folder: Path) -> None:
    """Remove what only a resume needs; for runs that are finished."""
    _remove_unfinished(folder)
    for path in checkpoints(folder):
        path.unlink()


def _restore(learner: Learner, file: Any) -> None:
    """Copy an open safetensors file into the learner, tensor by tensor.

    Raises ValueError, having changed nothing, when the file does not fit.
    """
    names = set(file.keys())
    parameters = trained_parameters(learner.policy.model)
    count = sum(parameter.numel() for parameter in parameters.values())
    state: dict[Tensor, dict[str, Tensor]] = {
        # Adam makes its state at the first step; an explicit one is what the tensors are copied into.
        parameter: {
            "step": torch.zeros((), device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
        for name, parameter in parameters.items()
        if f"step.{name}" in names  # else it never got a gradient, so Adam never made a state for it
    }
    own = dict(_named(parameters, state))
    strange = own.keys() ^ (names - {PREVIOUS})
    strange |= {name for name in own.keys() & names if file.get_slice(name).get_shape() != [*own[name].shape]}
    if strange:
        raise ValueError(f"its tensors do not fit the model: {sorted(strange)[:3]}")
    with torch.no_grad():
        for name, tensor in own.items():
            local(tensor).copy_(file.get_slice(name)[span(tensor)] if tensor.ndim else file.get_tensor(name))
    learner.optimizer.state.clear()
    learner.optimizer.state.update(state)
    learner.previous_gradient = None
    if PREVIOUS in names:
        flat = file.get_slice(PREVIOUS)
        # Of a model that does not use all of its weights, which has no gradient for each: the cosine is left out once.
        parts = _spans(parameters.values()) if flat.get_shape() == [count] else [slice(0, None)]
        device = learner.parameters[0].device
        learner.previous_gradient = torch.cat([flat[part] for part in parts]).to(device)


def _spans(parameters: Iterable[Tensor]) -> Iterator[slice]:
    """Where what this process holds of each lies in the flat gradient of all."""
    start = 0
    for parameter in parameters:
        rows, row = span(parameter), parameter.numel() // max(1, len(parameter))
        yield slice(start + rows.start * row, start + rows.stop * row)
        start += parameter.numel()


def _entries(learner: Learner) -> Iterator[Entry]:
    """Weights that are trained, tied ones once, their optimizer's moments, and the last gradient."""
    parameters = trained_parameters(learner.policy.model)
    for name, tensor in _named(parameters, learner.optimizer.state):
        yield Entry(name, tensor.shape, partial(learner.parts, name))
    if learner.previous_gradient is not None:
        yield Entry(PREVIOUS, (learner.gradient_size,), partial(learner.parts, PREVIOUS))


def _named(parameters: dict[str, Any], state: Any) -> Iterator[tuple[str, Tensor]]:
    for name, parameter in parameters.items():
        yield f"model.{name}", parameter
        for key, value in state.get(parameter, {}).items():
            yield f"{key}.{name}", value


def _update(path: Path) -> int | None:
    match = re.fullmatch(r"checkpoint-(\d+)\.safetensors", path.name)
    return int(match[1]) if match else None


def _key(path: Path) -> int:
    return _update(path) or 0


def _remove_unfinished(folder: Path) -> None:
    """A kill while a checkpoint is written leaves a part of it, as large as the model."""
    for path in folder.glob(f".{PATTERN}.tmp"):
        path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Force the names to disk, too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
