"""The pages under docs/ name what there is: keys of runs, fields of metrics, files that are linked."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainer.config import Config, RunConfig
from trainer.metrics import MetricsRow

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RUNS = (ROOT / "docs/runs.md").read_text()


def keys(model: type[Config], prefix: str = "") -> Iterator[str]:
    """Dotted names of all keys below `model`."""
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Config):
            yield from keys(inner, f"{prefix}{name}.")
        else:
            yield prefix + name


def test_every_key_of_a_run_is_documented_and_no_other() -> None:
    section = RUNS.split("## Keys")[1].split("## Folder")[0]
    assert re.findall(r"^\| `([\w.]+)` \|", section, flags=re.MULTILINE) != []
    assert set(re.findall(r"^\| `([\w.]+)` \|", section, flags=re.MULTILINE)) == set(keys(RunConfig))


def test_every_field_of_a_row_is_documented_and_no_other() -> None:
    section = RUNS.split("## Fields of `metrics.jsonl`")[1]
    assert set(re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE)) == set(MetricsRow.__annotations__)


def test_the_run_file_of_the_page_is_a_run() -> None:
    block = re.search(r"```toml\n(.*?)```", RUNS, flags=re.DOTALL)
    assert block is not None
    assert RunConfig.model_validate(tomllib.loads(block.group(1))).schedule == "overlap"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target
