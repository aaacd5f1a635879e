"""Writing files: what an error names."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from trainer.errors import EnvironmentFailedError
from trainer.files import disk_errors, replacing, write_atomically


def test_an_error_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "gone" / "report.html"
    with pytest.raises(EnvironmentFailedError, match=r"/report\.html: no such folder"), disk_errors(tmp_path):
        write_atomically(path, "text")


def test_an_error_of_another_file_keeps_its_name(tmp_path: Path) -> None:
    path, other = tmp_path / "report.html", tmp_path / "other"
    with pytest.raises(OSError, match="other") as caught, replacing(path):
        other.read_bytes()
    assert caught.value.errno == errno.ENOENT
    assert not list(tmp_path.iterdir())
