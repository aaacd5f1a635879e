"""A server process that lives no longer than whoever started it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from trainer.errors import ConfigError, EnvironmentFailedError

SUPERVISE = Path(__file__).with_name("supervise.py")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the files lie in a private folder there
TAIL = 4000
"""Characters of the log that stand in an error."""
GRACE = 30.0
"""Seconds for the server to free its shared memory and end; its supervisor kills it before."""


class ServerProcess:
    """Runs a command in a process group of its own, with a private folder in shared memory and a log."""

    def __init__(self, folder: Path, log: Path, command: Sequence[str], variables: Mapping[str, str]) -> None:
        """`folder` is removed with the process; `log` stays if the process fails."""
        self.folder, self.log = folder, log
        self._keep_log = False
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(SUPERVISE), str(folder), *command],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **variables},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Number of the process, and of its group."""
        return self._process.pid

    def wait_until(self, ready: Callable[[], bool], *, seconds: float) -> None:
        """Return when `ready` says so. Raises EnvironmentFailedError when the process ends first, or in time."""
        deadline = time.monotonic() + seconds
        while not ready():
            self.check()
            if time.monotonic() > deadline:
                raise self.failed(f"was not up after vllm.start_timeout = {seconds:g} s")
            time.sleep(0.2)

    def check(self) -> None:
        """Raise EnvironmentFailedError with the end of the log when the process is gone."""
        if self._process.poll() is not None:
            raise self.failed("died")

    def failed(self, how: str) -> EnvironmentFailedError:
        """The error for a server that died or does not work any more; it is ended."""
        self.close(keep_log=True)
        return EnvironmentFailedError(
            f"the vLLM server {how}; when the cause is mended, the same command continues from the last checkpoint. "
            f"The end of its log:\n{self.tail()}"
        )

    def tail(self) -> str:
        """The log's end and where the rest is."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return f"{text[-TAIL:].strip() or '(nothing)'}\n({self.log})"

    def close(self, *, keep_log: bool = False) -> None:
        """End the process and all that it started. A log that was once to be kept, as an error names it, stays.

        Its supervisor does that; where it was killed itself, what it would have done is done here.
        """
        self._keep_log |= keep_log
        if self._process.stdin is not None:
            self._process.stdin.close()  # what its supervisor waits for
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
        if not self._keep_log:
            self.log.unlink(missing_ok=True)


def private_folder() -> Path:
    """A new folder in shared memory that only this user may enter."""
    parent = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix="grpo-vllm-", dir=parent))


def new_log() -> Path:
    """An empty file for a server's output."""
    handle, path = tempfile.mkstemp(prefix="grpo-vllm-", suffix=".log")
    os.close(handle)
    return Path(path)


def require_free_port(port: int) -> None:
    """Raise ConfigError when another process listens on 127.0.0.1:`port`."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ConfigError(
                f"vllm.port = {port} cannot be used on 127.0.0.1 ({error.strerror}): choose another, or leave it out"
            ) from error


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
