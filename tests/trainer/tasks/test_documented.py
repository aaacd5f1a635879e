"""What docs/tasks.md and the example studies show is what works."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from calibrator.study.config import load_study_config
from trainer.config import TaskConfig
from trainer.tasks import load_task
from trainer.tasks.scoring import rewards

ROOT = Path(__file__).parents[3]


def test_the_documented_class_is_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = re.findall(r"```python\n(.*?)```", (ROOT / "docs/tasks.md").read_text(), flags=re.DOTALL)
    (tmp_path / "documented_task.py").write_text(code[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    config = TaskConfig(name="documented_task:Vowels", options={"prefix": ""}, on_scoring_error="skip")
    task = load_task(config)
    training, held_out = (
        {e.prompt for e in task.prompts(np.random.default_rng(0), 50, held_out=side)}
        for side in (False, True)
    )
    assert not training & held_out
    assert rewards(task, ["oie", "x"], ["oie", "oie"], config) == [1.0, 0.0]
    assert np.isnan(rewards(task, ["oie", "\0"], ["oie", "oie"], config)[1])


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.toml")), ids=lambda path: path.name)
def test_example_studies_parse(path: Path) -> None:
    config = load_study_config(path)
    assert config.output.folder.startswith("runs/")
    if config.task.name != "jsonl":
        load_task(config.task)
