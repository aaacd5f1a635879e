"""Seconds by phase."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch


class Stopwatch:
    """Seconds by phase since the last `take`."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of the block to `name`. On a GPU the device is waited for, or its time would land elsewhere."""
        start = time.perf_counter()
        yield
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self._seconds[name] += time.perf_counter() - start

    def add(self, seconds: Mapping[str, float]) -> None:
        """Add seconds that another process measured."""
        for name, value in seconds.items():
            self._seconds[name] += value

    def take(self) -> dict[str, float]:
        """The seconds so far, rounded to microseconds; counting starts anew."""
        taken = {name: round(seconds, 6) for name, seconds in self._seconds.items()}
        self._seconds.clear()
        return taken
