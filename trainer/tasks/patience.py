"""A limit on the time that somebody else's function may take, in the process that calls it."""

from __future__ import annotations

import faulthandler
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

T = TypeVar("T")

AGAIN = 1.0
"""Seconds after which a function that caught the interruption is interrupted again."""
LAST_RESORT = 60.0
"""Seconds beyond the limit after which the process is ended: the function never came back to the interpreter."""
STDERR = 2


class TimeUpError(Exception):
    """The function took longer than its limit."""


class _InterruptedError(BaseException):
    """Raised inside the function; no Exception, so that `except Exception` does not take it for an answer."""


def call_within(seconds: float, function: Callable[[], T]) -> T:
    """`function()`, interrupted after `seconds`. Raises TimeUpError then, even when the function swallowed it.

    In the main thread a watching thread sends SIGUSR2, whose handler raises in the midst of the function, be it in a
    loop, asleep or waiting for a socket. (SIGALRM is left to the function: math-verify, for one, sets it.) In another
    thread, or in compiled code that never returns to the interpreter, that cannot help: then, LAST_RESORT seconds
    later, the process prints the stack to stderr and ends with exit code 1, rather than hang for good.
    """
    faulthandler.dump_traceback_later(seconds + LAST_RESORT, exit=True, file=STDERR)
    try:
        if threading.current_thread() is threading.main_thread():
            return _interrupted_after(seconds, function)
        return function()
    finally:
        faulthandler.cancel_dump_traceback_later()


def _interrupted_after(seconds: float, function: Callable[[], T]) -> T:
    done, late = threading.Event(), threading.Event()
    running = False
    main = threading.main_thread().ident or 0

    def watch() -> None:
        if not done.wait(seconds):
            late.set()
            while not done.is_set():
                signal.pthread_kill(main, signal.SIGUSR2)
                done.wait(AGAIN)

    def interrupt(number: int, frame: FrameType | None) -> None:
        if late.is_set() and running:
            raise _InterruptedError
        if not late.is_set() and callable(before):  # Somebody else's signal.
            before(number, frame)

    before = signal.signal(signal.SIGUSR2, interrupt)
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        try:
            running = True
            result = function()
        finally:
            running = False
    except _InterruptedError:  # Also one that came after the function, just before the line above.
        running = False
        raise TimeUpError from None
    finally:
        done.set()
        watcher.join()
        signal.signal(signal.SIGUSR2, before if before is not None else signal.SIG_DFL)
    if late.is_set():
        raise TimeUpError
    return result
