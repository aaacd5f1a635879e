"""Questions and answers from a file: what is read, what is refused, how it is split and scored."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrator.study.provenance import task_digest
from trainer.config import TaskConfig
from trainer.errors import ConfigError
from trainer.tasks import load_task
from trainer.tasks.answers import compare_simply, final_answer
from trainer.tasks.jsonl import Jsonl, read_rows, split

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(*rows: Any, raw: bytes | None = None) -> Path:
        path = tmp_path / "data.jsonl"
        path.write_bytes(raw if raw is not None else "\n".join(map(json.dumps, rows)).encode())
        return path

    return to_file


def row(number: int, **fields: Any) -> dict[str, Any]:
    return {"question": f"What is {number} and 1?", "answer": number + 1, **fields}


def test_500_rows_are_split_and_no_question_is_in_both(write: Write) -> None:
    task = Jsonl(str(write(*map(row, range(500)))))
    rng = np.random.default_rng(0)
    training, held_out = task.prompts(rng, 469), task.prompts(rng, 31, held_out=True)
    assert len({e.prompt for e in training}) == 469
    assert len({e.prompt for e in held_out}) == 31
    assert not {e.prompt for e in training} & {e.prompt for e in held_out}


def test_every_row_comes_once_before_any_comes_again_and_the_same_generator_gives_the_same(
    write: Write,
) -> None:
    task = Jsonl(str(write(*map(row, range(16)))), held_out_share=0.25)
    drawn = [e.prompt for e in task.prompts(np.random.default_rng(1), 36)]
    assert len(set(drawn[:12])) == len(set(drawn[12:24])) == 12
    assert drawn == [e.prompt for e in task.prompts(np.random.default_rng(1), 36)]


@given(st.lists(st.text(min_size=1, max_size=3), min_size=2, max_size=40), st.floats(0.01, 0.99))
def test_equal_questions_are_on_one_side_and_neither_side_is_empty(asked: list[str], share: float) -> None:
    if len(set(asked)) < 2:
        return
    sides = split([(text, "1") for text in asked], share, source="x")
    questions = [{text for text, _ in sides[held_out]} for held_out in (False, True)]
    assert all(questions)
    assert not questions[0] & questions[1]
    assert sum(map(len, sides.values())) == len(asked)


@pytest.mark.parametrize("rows", [[row(1)], [row(1), row(1), row(1)]])
def test_a_file_with_one_question_cannot_be_split(write: Write, rows: list[Any]) -> None:
    with pytest.raises(
        ConfigError, match=r"data\.jsonl.*holds one question.*held-out questions must be others"
    ):
        Jsonl(str(write(*rows)))


def test_byte_order_mark_blank_lines_and_crlf_are_fine(write: Write) -> None:
    lines = ["", json.dumps(row(1)), "  ", json.dumps(row(2, question="a\u2028b")), ""]
    path = write(raw=b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    assert read_rows(path, "question", "answer") == [("What is 1 and 1?", "2"), ("a\u2028b", "3")]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"question": "a", "answer"', "line 2: not JSON"),
        ("[1, 2]", "line 2: not a JSON object but list"),
        ('{"question": "a"}', "line 2: no field 'answer'; it has 'question'"),
        ('{"question": "  ", "answer": 1}', "line 2: 'question' must be text"),
        ('{"question": 3, "answer": 1}', "line 2: 'question' must be text"),
        (r'{"question": "\ud800", "answer": 1}', "line 2: cannot be used"),
        ('{"question": "a", "answer": ' + "9" * 5000 + "}", "line 2: "),
        ('{"question": "a", "answer": ""}', "line 2: 'answer' must be text or a number"),
        ('{"question": "a", "answer": "so #### "}', "line 2: 'answer' must be"),
        ('{"question": "a", "answer": "\\\\boxed{}"}', "line 2: 'answer' must be"),
        ('{"question": "a", "answer": null}', "line 2: 'answer' must be"),
        ('{"question": "a", "answer": true}', "line 2: 'answer' must be"),
        ('{"question": "a", "answer": NaN}', "line 2: 'answer' must be"),
        ("[" * 100_000, "line 2: not JSON"),
    ],
)
def test_a_malformed_row_is_named_by_its_line(write: Write, line: str, words: str) -> None:
    path = write(raw=f"{json.dumps(row(1))}\n{line}\n{json.dumps(row(2))}".encode())
    with pytest.raises(ConfigError, match=re.escape(words)):
        Jsonl(str(path))


def test_many_malformed_rows_are_counted(write: Write) -> None:
    with pytest.raises(ConfigError, match=r"line 1: .*line 5: .*and 3 more lines"):
        Jsonl(str(write(*[1] * 8)))


@pytest.mark.parametrize(
    ("raw", "words"),
    [(b"", "has no rows"), (b"\n \n", "has no rows"), (b'{"a": 1}\n\xff\xfe', "line 2 is not UTF-8")],
)
def test_a_file_that_is_no_data_is_named(write: Write, raw: bytes, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Jsonl(str(write(raw=raw)))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"held_out_share": 0}, "task.options.held_out_share = 0"),
        ({"held_out_share": "half"}, "task.options.held_out_share"),
        ({"template": "no place"}, "task.options.template"),
        ({"chat": "perhaps"}, "task.options.chat"),
        ({"system": 3}, "task.options.system"),
        ({"question": "prompt"}, "no field 'prompt'; it has 'question', 'answer'"),
        ({"shuffle": True}, "shuffle"),
        ({"path": "nowhere.jsonl"}, "nowhere.jsonl.*no such file"),
        ({"path": "."}, "cannot be read"),
    ],
)
def test_a_wrong_option_is_named(write: Write, options: dict[str, Any], words: str) -> None:
    path = str(write(row(1), row(2)))
    with pytest.raises(ConfigError, match=words):
        load_task(TaskConfig(name="jsonl", options={"path": path, **options}))


def test_a_template_keeps_other_braces(write: Write) -> None:
    template = "{question} Answer in \\boxed{}."
    task = Jsonl(str(write(row(1), row(2))), template=template, system="Be brief.", chat="no")
    assert re.fullmatch(
        r"Be brief\.\n\nWhat is \d and 1\? Answer in \\boxed\{\}\.",
        task.prompts(np.random.default_rng(0), 1)[0].prompt,
    )


def test_the_content_of_the_file_is_in_the_digest(write: Write) -> None:
    config = TaskConfig(name="jsonl", options={"path": str(write(row(1), row(2)))})
    before = task_digest(config)
    assert task_digest(config) == before
    write(row(1), row(3))
    assert task_digest(config) != before


@pytest.mark.parametrize(
    ("answer", "completion", "told"),
    [
        ("42", "42", True),
        ("42", " 42\n", True),
        ("42", "042.0", True),
        ("1,234", "1234", True),
        ("$5", "5", True),
        ("42", "43", False),
        ("42", "", False),
        ("42", "#### ", False),
        ("42", "6 * 7 = 42\n#### 42\n", True),
        ("42", "42 #### 41", False),
        ("Paris", "  paris ", True),
        ("Paris", "Pairs", False),
        ("Paris", "\\boxed{Paris}", True),
        ("Paris", "I first thought \\boxed{Rome}, but $\\boxed {\\text{paris}}$.", True),
        ("Paris", "\\boxed{Paris} or \\boxed{Rome}", False),
        ("Paris", "\\boxed{Paris} or \\boxed{Ro", True),
        ("Paris", "\\boxed{Paris", False),
        ("Paris", "\\boxed{}", False),
        ("Paris", "The answer is Paris.", False),
        ("Paris", "\\boxed{Rome} #### Paris", True),
        ("the set {a, b}", "\\boxed{the set {a, b}}", True),
        ("\\boxed{Paris}", "Paris", True),
        ("\\text{Paris}", "\\boxed{Pairs}", False),
        ("42", "so \\boxed{42}", True),
        ("42", "42, no, \\boxed{43}", False),
        ("42", "\\boxed{\\frac{84}{2}}", None),
        ("\\{1, 2\\}", "\\boxed{\\{1, 2\\}}", True),
        ("9" * 5000, "9" * 5000 + ".0", True),
        ("0.5", "0.25", None),
        ("42", "it is 42", None),
        ("x+1", "1+x", None),
    ],
)
def test_simple_answers_need_no_mathematics(answer: str, completion: str, told: bool | None) -> None:
    assert compare_simply(answer, final_answer(completion)) is told


def test_scores_in_order_and_starts_processes_only_when_needed(write: Write) -> None:
    gsm8k = {"question": "How many?", "answer": "Six times seven is <<6*7=42>>42.\n#### 42"}
    task = Jsonl(str(write(gsm8k, row(1))))
    rng = np.random.default_rng(0)
    assert {task.prompts(rng, 1, held_out=side)[0].reference for side in (False, True)} == {"42", "2"}
    assert task.score(["42", "41", "", "#### 42"], ["42"] * 4) == [1, 0, 0, 1]
    assert not task._verifier._idle
    assert task.score(["41", "it is 42", "42", "\\boxed{\\frac{84}{2}}", "or 40"], ["42"] * 5) == [
        0,
        1,
        1,
        1,
        0,
    ]
    task.close()
