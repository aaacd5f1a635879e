"""Reduced precision of forward and backward passes over float32 master weights."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


def autocast(device: str, dtype: str) -> AbstractContextManager[object]:
    """Autocast to bfloat16 on `device`, or nothing for float32."""
    return torch.autocast(device, torch.bfloat16) if dtype == "bfloat16" else nullcontext()
