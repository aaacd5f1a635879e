"""Runs a command until it ends or whoever started this script is gone, and leaves nothing behind.

Called as `supervise.py FOLDER COMMAND...` in a process group of its own, with a pipe as standard input. However its
parent dies, even by `kill -9`, the pipe closes or the parent's number changes; then the whole group is ended and
FOLDER removed. Standard library only: this script is run by its path, so that it starts fast.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

LOOK_EVERY = 0.2
GRACE = 10.0
"""Seconds: between two looks, and for the command to end by itself."""
GRACE_OF_THE_REST = 5.0
"""Seconds for what the command left to end by itself, then for Python's trackers to free its shared memory."""
TRACKER = "multiprocessing.resource_tracker"


def supervise(folder: str, command: list[str]) -> None:
    """Start `command`, wait, end the process group that this process leads."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    parent = os.getppid()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    while child.poll() is None and os.getppid() == parent:
        closed, _, _ = select.select([sys.stdin], [], [], LOOK_EVERY)
        if closed:  # nothing is ever written to it
            break
    child.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(GRACE)
    os.killpg(0, signal.SIGTERM)
    wait_for_the_rest()
    for pid, command_line in others(os.getpid()).items():
        if TRACKER not in command_line:  # they end last, and free what the others had no time for
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    wait_for_the_rest()
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)


def wait_for_the_rest() -> None:
    """Until this process is alone in its group, or the time is up."""
    deadline = time.monotonic() + GRACE_OF_THE_REST
    while others(os.getpid()) and time.monotonic() < deadline:
        time.sleep(LOOK_EVERY)


def others(leader: int) -> dict[int, str]:
    """Living members of the process group of `leader`, except itself, with their command lines."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, _, group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(group) == leader and state != "Z" and int(folder.name) != leader:
                found[int(folder.name)] = (folder / "cmdline").read_text(errors="replace")
    return found


if __name__ == "__main__":
    supervise(sys.argv[1], sys.argv[2:])
