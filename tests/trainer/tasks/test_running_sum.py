from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.config import TaskConfig
from trainer.errors import ConfigError
from trainer.tasks import RunningSum, load_task
from trainer.tasks.running_sum import answer, is_held_out


@given(st.lists(st.integers(0, 9), min_size=1, max_size=20))
def test_answer_is_the_running_sum_modulo_ten(digits: list[int]) -> None:
    assert answer(digits) == "".join(str(sum(digits[: i + 1]) % 10) for i in range(len(digits)))


def test_splits_never_meet() -> None:
    task, rng = RunningSum(), np.random.default_rng(0)
    assert not any(is_held_out(e.prompt) for e in task.prompts(rng, 2000))
    assert all(is_held_out(e.prompt) for e in task.prompts(rng, 2000, held_out=True))


def test_same_generator_state_same_prompts() -> None:
    first, second = (RunningSum().prompts(np.random.default_rng(7), 50) for _ in range(2))
    assert first == second


def test_only_the_exact_answer_scores() -> None:
    scores = RunningSum().score(["12", "13", "122", ""], ["12", "12", "12", "12"])
    assert scores == [1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("task", "named"),
    [
        (TaskConfig(name="no-such-task"), "task.name"),
        (TaskConfig(name="nowhere:Task"), "nowhere"),
        (TaskConfig(name="json:Task"), "task.name"),
        (TaskConfig(name="json:JSONDecoder"), "no prompts"),
        (TaskConfig(options={"digits": 2}), "digits"),
        (TaskConfig(options={"digit": 3}), "task.options"),
    ],
)
def test_a_task_that_does_not_exist_or_fit_is_named(task: TaskConfig, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        load_task(task)


def test_a_broken_task_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_task.py").write_text("def prompts(:\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"broken_task.*SyntaxError"):
        load_task(TaskConfig(name="broken_task:Task"))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("def __init__(self): raise RuntimeError('boom')", "RuntimeError: boom"),
        ("def __init__(self): raise SystemExit(7)", "SystemExit: 7"),
        ("reward_floor = 'zero'", "reward_floor = 'zero'"),
        ("reward_floor = float('nan')", "reward_floor = nan"),
        ("full_marks = None", "full_marks = None"),
        ("reward_floor = 2.0", "below full marks"),
    ],
)
def test_a_task_that_cannot_be_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, words: str
) -> None:
    module = f"task_{abs(hash(body))}"
    (tmp_path / f"{module}.py").write_text(
        "class Task:\n"
        "    reward_floor, full_marks = 0.0, 1.0\n"
        "    def prompts(self, rng, n, held_out=False): ...\n"
        "    def score(self, completions, references): ...\n"
        f"    {body}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=re.escape(words)):
        load_task(TaskConfig(name=f"{module}:Task"))
