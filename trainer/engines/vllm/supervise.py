"""Runs a command until it ends or whoever started this script is gone, and leaves nothing behind.

Called as `supervise.py FOLDER COMMAND...` in a process group of its own, with a pipe as standard input. However its
parent dies, even by `kill -9`, the pipe closes or the parent's number changes; then the whole group is killed and
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

LOOK_EVERY = 0.2
GRACE = 5.0
"""Seconds: between two looks, and for the command to end by itself."""


def supervise(folder: str, command: list[str]) -> None:
    """Start `command`, wait, kill the process group that this process leads."""
    parent = os.getppid()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    while child.poll() is None and os.getppid() == parent:
        closed, _, _ = select.select([sys.stdin], [], [], LOOK_EVERY)
        if closed:  # nothing is ever written to it
            break
    if child.poll() is None:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GRACE)
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    supervise(sys.argv[1], sys.argv[2:])
