"""Writing safetensors files tensor by tensor, so that what is written need never be in memory as a whole.

The bytes are those that safetensors itself writes: https://github.com/huggingface/safetensors (format).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor


@dataclass(frozen=True)
class Entry:
    """One tensor of a file."""

    name: str
    shape: Sequence[int]
    parts: Callable[[], Iterator[Tensor]]
    """float32 tensors whose elements, one after the other, are those of the whole."""

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * torch.float32.itemsize


def write_tensors(path: Path, entries: Sequence[Entry], metadata: Mapping[str, str]) -> None:
    """Write `entries`, by name, to `path`. Raises OSError as the disk does."""
    ordered = sorted(entries, key=lambda entry: entry.name)
    with path.open("wb") as file:
        file.write(_header(ordered, metadata))
        for entry in ordered:
            written = 0
            for part in entry.parts():
                if part.dtype != torch.float32:
                    raise TypeError(f"{entry.name} is {part.dtype}, not float32")
                written += file.write(part.detach().cpu().contiguous().view(-1).numpy().data.cast("B"))
            if written != entry.nbytes:
                raise ValueError(f"{entry.name}: {written} bytes instead of {entry.nbytes}")


def _header(entries: Sequence[Entry], metadata: Mapping[str, str]) -> bytes:
    content: dict[str, object] = {"__metadata__": dict(metadata)}
    start = 0
    for entry in entries:
        end = start + entry.nbytes
        content[entry.name] = {"dtype": "F32", "shape": [*entry.shape], "data_offsets": [start, end]}
        start = end
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
