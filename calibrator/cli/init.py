"""`calibrate init`."""

from __future__ import annotations

from pathlib import Path

from calibrator.cli.source import TEMPLATE
from calibrator.errors import StudyConfigError
from reports.numbers import visible
from trainer.files import disk_errors, write_atomically


def write_template(path: Path, *, force: bool) -> None:
    """Write the commented study file. Raises StudyConfigError when `path` exists and `force` is not given."""
    if path.exists() and not force:
        raise StudyConfigError(f"{path} exists; choose another name, or --force to overwrite it")
    with disk_errors(path):
        write_atomically(path, TEMPLATE.read_text(encoding="utf-8"))
    print(f"wrote {visible(str(path))}; next: calibrate plan {visible(str(path))}")
