"""`calibrate init`."""

from __future__ import annotations

from pathlib import Path

from calibrator.cli.source import PRESETS, TEMPLATE
from calibrator.errors import StudyConfigError
from reports.numbers import visible
from trainer.files import disk_errors, write_atomically


def presets() -> dict[str, Path]:
    """Study files that ship with the package, by name."""
    return {path.stem: path for path in sorted(PRESETS.glob("*.toml"))}


def write_template(path: Path, *, force: bool, preset: str | None = None) -> None:
    """Write the commented study file, or that of a preset.

    Raises StudyConfigError when there is no such preset, or `path` exists and `force` is not given.
    """
    source = TEMPLATE if preset is None else presets().get(preset)
    if source is None:
        raise StudyConfigError(f"--preset {preset}: no such preset; take one of {', '.join(presets())}")
    if preset is None and (named := presets().get(path.name.removesuffix(".toml"))):
        raise StudyConfigError(
            f"{path} is named as a preset: for its settings add --preset {named.stem}, or choose another name"
        )
    if path.exists() and not force:
        raise StudyConfigError(f"{path} exists; choose another name, or --force to overwrite it")
    with disk_errors(path):
        write_atomically(path, source.read_text(encoding="utf-8"))
    before = "" if preset is None else "set model.path to a folder of the model, or model.download = true; "
    print(f"wrote {visible(str(path))}; {before}next: calibrate plan {visible(str(path))}")
