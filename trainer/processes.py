"""Child processes: what they load beforehand and how they end. Importing this never imports torch."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import parent_process
from multiprocessing.connection import wait
from pathlib import Path

PRELOAD = [
    "trainer.loop.train",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.qwen3.modeling_qwen3",
    "transformers.models.llama.modeling_llama",
]
"""Modules that the server process from which others fork has loaded: importing them takes seconds."""


CHILD_ENVIRONMENT = {"PYTHONSAFEPATH": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
"""Of every child: a user's own `trainer.py` in the current folder must not be imported in the package's place, and what
may come from the network was fetched before."""


@contextmanager
def environment(values: Mapping[str, str], *, undo: Sequence[str] = ()) -> Iterator[None]:
    """Environment variables for the time of the block; what it changes in those named by `undo` is undone as well."""
    before = {name: os.environ.get(name) for name in (*values, *undo)}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def current_folder_last() -> None:
    """Let the user's own modules be imported; last on the path, so that they never hide one of the package."""
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))


def die_with_parent() -> None:
    """End this process as soon as the one that started it is gone, however that ended."""
    threading.Thread(target=_wait_and_die, daemon=True).start()


def _wait_and_die() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
