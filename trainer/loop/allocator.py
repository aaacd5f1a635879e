"""How the C library hands out memory to torch on a CPU."""

from __future__ import annotations

import ctypes
from contextlib import suppress

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT = 2**28
"""Bytes at the end of the heap that may lie idle before they go back to the system."""
OWN_MAPPING = 2**25
"""Bytes from which on a tensor gets a mapping of its own, the largest value that glibc chooses by itself."""
GIVEN_BACK = 2**20
"""The same two for a process that holds a share of a model: bytes from which on nothing is kept."""


def keep_freed_memory() -> None:
    """Keep what one operation frees for the next, which wants as much. For this whole process, where libc is glibc.

    By default glibc gives tensors of 128 KiB and more back to the system when they are freed, until it has learned
    better; the next one of the same size then costs a page fault for each of its pages, more than the operation itself.
    """
    _set(idle=KEPT, mapping=OWN_MAPPING)


def give_memory_back() -> None:
    """The opposite, slower and smaller: layers that are gathered and dropped would otherwise stay.

    By default glibc keeps what it was once asked for, up to 32 MiB a piece, for each thread.
    """
    _set(idle=GIVEN_BACK, mapping=GIVEN_BACK)


def _set(*, idle: int, mapping: int) -> None:
    with suppress(AttributeError, OSError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_TRIM_THRESHOLD, idle)
        mallopt(M_MMAP_THRESHOLD, mapping)
