"""Reduced precision of forward and backward passes over float32 master weights."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


def autocast(device: str, dtype: str) -> AbstractContextManager[object]:
    """Autocast to bfloat16 on `device`, or nothing for float32."""
    return torch.autocast(device, torch.bfloat16) if dtype == "bfloat16" else nullcontext()


def keep_casts(device: str, dtype: str) -> AbstractContextManager[object]:
    """Within this block `autocast` casts every weight once, not once a block of its own. Nothing else changes.

    Holds for weights that require a gradient, and adds 2 bytes for each that is cast. The block is itself not cast: it
    only keeps torch's cache alive. A weight that changes within it needs `torch.clear_autocast_cache()`.
    """
    return torch.autocast(device, torch.bfloat16, enabled=False) if dtype == "bfloat16" else nullcontext()


def without_gradient(dtype: str) -> AbstractContextManager[object]:
    """No gradient within this block. In float32 torch does not even keep what one would need: operations start sooner.

    In bfloat16 that would hide weights from what keeps their casts, see `keep_casts`.
    """
    return torch.no_grad() if dtype == "bfloat16" else torch.inference_mode()
