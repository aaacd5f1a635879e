"""Procedural tasks by name: options, splits that never meet, the dataset's own scorer."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from trainer.config import TaskConfig
from trainer.errors import ConfigError
from trainer.tasks import load_task
from trainer.tasks.framing import position
from trainer.tasks.gym import HELD_OUT_SHARE, ReasoningGym

EASY = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}


@pytest.mark.parametrize("name", ["chain_sum", "gcd", "graph_color", "basic_arithmetic"])
def test_splits_never_meet_and_the_same_generator_gives_the_same(name: str) -> None:
    task = ReasoningGym(name)
    training = task.prompts(np.random.default_rng(0), 40)
    held_out = task.prompts(np.random.default_rng(0), 10, held_out=True)
    assert not {e.prompt for e in training} & {e.prompt for e in held_out}
    assert ReasoningGym(name).prompts(np.random.default_rng(0), 40) == training


def test_options_set_the_difficulty_and_small_ones_still_split() -> None:
    task = ReasoningGym("chain_sum", **EASY)
    rng = np.random.default_rng(0)
    training, held_out = ({e.prompt for e in task.prompts(rng, 500, held_out=side)} for side in (False, True))
    assert not training & held_out
    assert len(training | held_out) <= 200
    assert len(held_out) >= 5


def test_the_datasets_own_scorer_gives_partial_credit_within_its_range() -> None:
    task = load_task(TaskConfig(name="reasoning-gym:spell_backward"))
    examples = task.prompts(np.random.default_rng(0), 8)
    answers = [json.loads(e.reference)["answer"] for e in examples]
    references = [e.reference for e in examples]
    assert task.score(answers, references) == [1.0] * 8
    assert task.score([f"I think\n<answer>{answer}</answer>" for answer in answers], references) == [1.0] * 8
    wrong = task.score([answer[:-1] + "?" for answer in answers], references)
    assert all(task.reward_floor <= float(str(r)) < task.full_marks for r in wrong)
    assert task.score([""] * 8, references) == [0.0] * 8


def test_an_entry_is_found_again_by_another_process_of_the_task() -> None:
    """Scoring needs the entry's metadata, which the reference names by index."""
    examples = ReasoningGym("countdown").prompts(np.random.default_rng(3), 3)
    answers = [json.loads(e.reference)["answer"] for e in examples]
    assert ReasoningGym("countdown").score(answers, [e.reference for e in examples]) == [1.0] * 3


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("chain_sums", {}, "did you mean chain_sum"),
        ("zzzz", {}, "there are .*chain_sum"),
        ("chain_sum", {"terms": 3}, r"task\.options\.terms.*there are .*max_terms"),
        ("chain_sum", {"seed": 3}, r"task\.options\.seed"),
        ("chain_sum", {"min_terms": 9}, "max_terms must be >= min_terms"),
        ("chain_sum", {"min_terms": "two"}, "task.options"),
        ("chain_sum", {"size": 0}, "size"),
        ("chain_sum", {"chat": "maybe"}, "task.options.chat"),
    ],
)
def test_a_wrong_name_or_option_is_named(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_task(TaskConfig(name=f"reasoning-gym:{name}", options=options))


def test_too_few_different_questions_to_hold_some_out() -> None:
    task, rng = ReasoningGym("chain_sum", size=1), np.random.default_rng(0)
    its_own = position(task._entry(0)["question"]) < HELD_OUT_SHARE
    assert len(task.prompts(rng, 3, held_out=its_own)) == 3
    with pytest.raises(ConfigError, match="too few different questions"):
        task.prompts(rng, 1, held_out=not its_own)
