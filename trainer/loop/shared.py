"""Weights between two processes of one machine: two copies in shared memory, one to write while the other is read."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import torch
from torch import Tensor

from trainer.errors import EnvironmentFailedError
from trainer.loop.rollouts import Weights

SLOTS = 2
ALIGNMENT = 64
"""Bytes; vector instructions read aligned."""


@dataclass(frozen=True)
class Layout:
    """Where each parameter lies in a slot. All are stored in one dtype."""

    shapes: Mapping[str, tuple[int, ...]]
    dtype: torch.dtype

    @staticmethod
    def of(weights: Weights, dtype: torch.dtype) -> Layout:
        return Layout({name: tuple(tensor.shape) for name, tensor in weights.items()}, dtype)

    @property
    def nbytes(self) -> int:
        return sum(self._size(shape) for shape in self.shapes.values())

    def views(self, memory: SharedMemory) -> dict[str, Tensor]:
        """Tensors that lie in `memory`."""
        found, offset = {}, 0
        for name, shape in self.shapes.items():
            flat = torch.frombuffer(memory.buf, dtype=self.dtype, count=math.prod(shape), offset=offset)
            found[name] = flat.view(shape)
            offset += self._size(shape)
        return found

    def _size(self, shape: tuple[int, ...]) -> int:
        size = math.prod(shape) * self.dtype.itemsize
        return -(-size // ALIGNMENT) * ALIGNMENT


class SharedWeights:
    """Both processes hold one; the one that makes it without `names` owns the memory and frees it."""

    def __init__(self, layout: Layout, names: tuple[str, ...] | None = None) -> None:
        """Raises EnvironmentFailedError when the machine has too little shared memory."""
        self._owner = names is None
        if names is None:
            _refuse_without_space(SLOTS * layout.nbytes)
            self._slots = [SharedMemory(create=True, size=max(1, layout.nbytes)) for _ in range(SLOTS)]
        else:
            self._slots = [SharedMemory(name) for name in names]
        self._views = [layout.views(slot) for slot in self._slots]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(slot.name for slot in self._slots)

    def write(self, slot: int, weights: Weights) -> None:
        """Copy `weights` into a slot, from whatever device they are on."""
        with torch.no_grad():
            for name, own in self._views[slot].items():
                own.copy_(weights[name])

    def read(self, slot: int) -> Weights:
        """The weights in a slot, not a copy."""
        return self._views[slot]

    def close(self) -> None:
        """Let go of the memory; the owner also frees it."""
        self._views = []
        for slot in self._slots:
            with suppress(BufferError):  # someone still holds a view: the memory goes with the process
                slot.close()
            if self._owner:
                with suppress(FileNotFoundError):
                    slot.unlink()


def _refuse_without_space(nbytes: int) -> None:
    folder = Path("/dev/shm")  # noqa: S108 - where Linux keeps shared memory; writing beyond its end kills a process
    if not folder.is_dir():
        return
    status = os.statvfs(folder)
    free = status.f_bavail * status.f_frsize
    if nbytes > free:
        raise EnvironmentFailedError(
            f"schedule = overlap needs {nbytes / 2**30:.2f} GiB of shared memory to hand weights over, {folder} has "
            f"{free / 2**30:.2f} GiB free: enlarge it (docker run --shm-size), or use schedule = lockstep"
        )
