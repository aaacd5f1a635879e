"""Shares of tensors: FSDP2 cuts each parameter along its first dimension, and pads nothing that one sees."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def local(tensor: Tensor) -> Tensor:
    """What this process holds of `tensor`: all of an ordinary one."""
    share: Any = getattr(tensor, "to_local", None)
    return tensor if share is None else share()


def whole(tensor: Tensor) -> Tensor:
    """All of `tensor`; where it is shared, every process must ask."""
    gather: Any = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()


def span(tensor: Tensor) -> slice:
    """Rows of `tensor` that this process holds.

    As `torch.chunk` cuts: ceil(rows / processes) each, the last ones less or none.
    """
    mesh: Any = getattr(tensor, "device_mesh", None)
    if mesh is None:
        return slice(0, len(tensor))
    rows = len(tensor)
    size = -(-rows // mesh.size())
    start = min(rows, mesh.get_local_rank() * size)
    return slice(start, min(rows, start + size))
