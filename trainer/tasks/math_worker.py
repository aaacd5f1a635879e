"""Compares answers with math-verify: JSON lines [answer, completion] in, verdicts out. A script of its own.

`python -P math_worker.py SECONDS`. It imports nothing of the package. Each comparison runs under an alarm whose
default action ends the process, by the kernel, whatever the interpreter is stuck in; so that even without a parent
nothing runs for longer than that, and an idle worker ends at the end of its input.
"""

from __future__ import annotations

import json
import logging
import os
import re
import resource
import signal
import sys
from functools import lru_cache
from typing import Any

MEMORY = 4 * 2**30
"""Bytes of address space: 10**10**10 must not take the machine down."""
ALARMS = (signal.SIGPROF, signal.SIGALRM)
"""Ends of processor time and of patience."""
PATIENCE = 6.0
"""Seconds that may pass for each second of processor time."""
SHORT = 200
"""Characters up to which a text without words is read as one expression."""
COMMENT = r"\%"
"""A bare percent sign begins a comment in LaTeX."""


class MemoryWatch(logging.Handler):
    """math-verify swallows what goes wrong and logs it; running out of memory must not look like a wrong answer."""

    full = False

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and isinstance(record.exc_info[1], MemoryError):
            self.full = True


def main() -> None:
    """Answer until the input ends."""
    seconds = float(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, whose end ends this process.
    for alarm in ALARMS:
        signal.signal(alarm, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ALARMS)
    answers = os.fdopen(os.dup(1), "w")
    watch = _watch_memory()
    _equal("$\\frac{1}{2}$", "1/2")  # Imports what it needs: not on the clock of the first comparison.
    _keep_quiet()
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        answer, completion = json.loads(line)
        watch.full = False
        signal.setitimer(signal.ITIMER_PROF, seconds)  # of processor time: a busy machine is nobody's fault
        signal.setitimer(signal.ITIMER_REAL, PATIENCE * seconds)
        try:
            verdict: bool | str = _equal(answer, completion)
        except (MemoryError, RecursionError) as error:
            verdict = type(error).__name__
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        if watch.full and verdict is not True:
            verdict = "MemoryError"
        print(json.dumps(verdict), file=answers, flush=True)


def _equal(answer: str, completion: str) -> bool:
    from math_verify import verify

    return bool(verify(_read(answer), _read(completion), timeout_seconds=None))


@lru_cache(maxsize=1024)
def _read(text: str) -> list[Any]:
    """The expressions in a text; one that has no words is itself an expression, not a place to look for numbers."""
    from math_verify import parse

    bare = len(text) <= SHORT and not re.search(
        r"[$]|boxed|[A-Za-z]{2}", re.sub(r"\\(?!boxed)[A-Za-z]+", "", text)
    )
    whole: list[Any] = parse(f"${text.replace('%', COMMENT)}$", parsing_timeout=None) if bare else []
    return whole or parse(text, parsing_timeout=None)


def _keep_quiet() -> None:
    """Parsers print their complaints about every broken formula."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def _watch_memory() -> MemoryWatch:
    watch = MemoryWatch(logging.DEBUG)
    logger = logging.getLogger("math_verify")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(watch)
    logger.propagate = False  # It warns that its own timeouts, which need the main thread, are off.
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = MEMORY if hard == resource.RLIM_INFINITY else min(MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    return watch


if __name__ == "__main__":
    main()
