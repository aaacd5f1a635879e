"""Words for counts in sentences."""

from __future__ import annotations


def plural(n: int, noun: str) -> str:
    """`1 run`, `3 runs`."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
