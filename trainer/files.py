"""Writing files so that a kill at any moment leaves the old or the new content, never a torn one."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainer.errors import EnvironmentFailedError

_REMEDIES = {
    errno.ENOSPC: "no space left on the device; free some and run the same command again, it continues",
    errno.EDQUOT: "the disk quota is used up; free some space and run the same command again, it continues",
    errno.EROFS: "the file system is read-only; choose another folder",
    errno.EACCES: "permission denied; choose a folder that you may write to",
    errno.EEXIST: "a file stands where a folder is wanted; choose another folder",
    errno.ENOTDIR: "a file stands where a folder is wanted; choose another folder",
    errno.EISDIR: "a folder stands where a file is wanted; move it away",
    errno.ENOENT: "no such folder; choose one that can be made",
    errno.ENAMETOOLONG: "the name is too long; choose a shorter one",
    errno.ELOOP: "its links go in a circle; choose another folder",
    errno.EIO: "the device failed to read or write; choose another folder",
    errno.EPERM: "operation not permitted; choose a folder that you may write to",
}


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn the disk's own errors into an EnvironmentFailedError that names the file and the remedy."""
    try:
        yield
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0)
        if remedy is None:
            raise
        raise EnvironmentFailedError(f"{error.filename or folder}: {remedy}") from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; afterwards the file is forced to disk and renamed over `path`.

    Raises EnvironmentFailedError where a device, a pipe or the like stands there: renaming would replace it.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise EnvironmentFailedError(f"{path}: is no regular file; choose another name")
    beside = path.with_name(f".{path.name}.tmp")
    try:
        yield beside
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException as error:
        beside.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename == str(beside):
            error.filename = str(path)  # the name that the user knows
        raise


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write beside `path`, force to disk, rename over it."""
    with replacing(path) as beside:
        beside.write_bytes(content.encode() if isinstance(content, str) else content)
