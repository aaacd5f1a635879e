"""docs/logs.md names every setting and every framework, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from calibrator.runlogs.frameworks import FRAMEWORKS
from calibrator.runlogs.settings import LogSettings

PAGE = (Path(__file__).parents[3] / "docs/logs.md").read_text()


def first_cells(section: str) -> list[str]:
    """Names in the first column of a section's table."""
    text = PAGE.split(f"## {section}")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]+) \|", text, flags=re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def test_settings() -> None:
    assert first_cells("Settings") == list(LogSettings.model_fields)


def test_frameworks() -> None:
    assert sorted(first_cells("Frameworks")) == sorted(FRAMEWORKS)
