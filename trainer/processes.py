"""Child processes: what they load beforehand and how they end. Importing this never imports torch."""

from __future__ import annotations

import os
import threading
from multiprocessing import parent_process
from multiprocessing.connection import wait

PRELOAD = [
    "trainer.loop.train",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.qwen3.modeling_qwen3",
    "transformers.models.llama.modeling_llama",
]
"""Modules that the server process from which others fork has loaded: importing them takes seconds."""


def die_with_parent() -> None:
    """End this process as soon as the one that started it is gone, however that ended."""
    threading.Thread(target=_wait_and_die, daemon=True).start()


def _wait_and_die() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
