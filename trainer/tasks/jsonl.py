"""Questions and answers from the user's own file, compared as mathematics."""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trainer.errors import ConfigError
from trainer.tasks.answers import compare_simply, final_answer, unboxed
from trainer.tasks.framing import Chat, Framing, position
from trainer.tasks.protocol import Example, Unscored
from trainer.tasks.verifier import Verifier

TOLD = 5
"""Malformed rows that an error names."""


class Jsonl:
    """One JSON object a line with a question and its answer. Reward 1 for an answer that math-verify holds equal."""

    reward_floor = 0.0
    full_marks = 1.0
    keeps_time = True

    def __init__(
        self,
        path: str,
        *,
        question: str = "question",
        answer: str = "answer",
        held_out_share: float = 1 / 16,
        template: str = "{question}",
        system: str | None = None,
        chat: Chat = "auto",
        scoring_timeout: float = 10.0,
    ) -> None:
        """Options are described in docs/tasks.md. Raises ConfigError naming the key, or the lines that are wrong."""
        if not (isinstance(held_out_share, int | float) and 0 < held_out_share < 1):
            raise ConfigError(f"task.options.held_out_share = {held_out_share!r}: must lie between 0 and 1")
        if importlib.util.find_spec("math_verify") is None:
            raise ConfigError("task.name = 'jsonl' needs math-verify: pip install 'grpo-calibrator[tasks]'")
        framing = Framing(template, system, chat)
        rows = read_rows(Path(path).expanduser(), question, answer)
        self._splits = {
            held_out: [framing.example(asked, right) for asked, right in part]
            for held_out, part in split(rows, held_out_share, source=path).items()
        }
        self._verifier = Verifier(timeout=scoring_timeout)

    def prompts(self, rng: np.random.Generator, n: int, *, held_out: bool = False) -> list[Example]:
        """Each row of the split once before any comes again."""
        rows = self._splits[held_out]
        order = np.concatenate([rng.permutation(len(rows)) for _ in range(math.ceil(n / len(rows)))])
        return [rows[index] for index in order[:n]]

    def score(self, completions: Sequence[str], references: Sequence[str]) -> list[float | Unscored]:
        """Equal text and plain numbers are told at once, the rest goes to math-verify in other processes."""
        pairs = [(right, final_answer(given)) for given, right in zip(completions, references, strict=True)]
        simple = [compare_simply(*pair) for pair in pairs]
        asked = iter(self._verifier.equal([p for p, told in zip(pairs, simple, strict=True) if told is None]))
        verdicts = [next(asked) if told is None else told for told in simple]
        return [verdict if isinstance(verdict, Unscored) else float(verdict) for verdict in verdicts]

    def close(self) -> None:
        """End the processes that compare."""
        self._verifier.close()


def read_rows(path: Path, question: str, answer: str) -> list[tuple[str, str]]:
    """Questions and final answers of all rows. Raises ConfigError naming the file and the lines that are wrong."""
    key = f"task.options.path = {str(path)!r}"
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{key}: no such file in {Path.cwd()}") from None
    except OSError as error:
        raise ConfigError(f"{key} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigError(f"{key}: line {line} is not UTF-8") from error
    rows, wrong = [], []
    # Not splitlines: it also splits at characters that may stand inside a JSON string.
    for number, content in enumerate(text.split("\n"), start=1):
        if content.strip():
            row = parse_row(content, question, answer)
            if isinstance(row, str):
                wrong.append(f"line {number}: {row}")
            else:
                rows.append(row)
    if wrong:
        more = f"; and {len(wrong) - TOLD} more lines" if len(wrong) > TOLD else ""
        raise ConfigError(f"{key}: {'; '.join(wrong[:TOLD])}{more}")
    if not rows:
        raise ConfigError(f"{key} has no rows")
    return rows


def parse_row(line: str, question: str, answer: str) -> tuple[str, str] | str:
    """Question and final answer of one line, or what is wrong with it."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"not JSON ({error})"
    if not isinstance(row, dict):
        return f"not a JSON object but {type(row).__name__}"
    missing = [name for name in (question, answer) if name not in row]
    if missing:
        return f"no field {', '.join(map(repr, missing))}; it has {', '.join(map(repr, row)) or 'none'}"
    asked, right = row[question], row[answer]
    if not isinstance(asked, str) or not asked.strip():
        return f"{question!r} must be text that is not empty"
    try:
        final = final_answer(_text(right))
        f"{asked}{final}".encode()
    except ValueError as error:  # half a surrogate pair, or a number of thousands of digits
        return f"cannot be used ({error})"
    return (asked, final) if unboxed(final) else f"{answer!r} must be text or a number, and not empty"


def split(rows: Sequence[tuple[str, str]], share: float, *, source: str) -> dict[bool, list[tuple[str, str]]]:
    """Rows held out (True) and for training (False).

    Questions are ordered by checksum and the first `share` of them held out: at least one, equal questions together,
    and no list to keep. Raises ConfigError when there is nothing to split.
    """
    questions = sorted({asked for asked, _ in rows}, key=lambda asked: (position(asked), asked))
    if len(questions) < 2:
        raise ConfigError(
            f"task.options.path = {source!r} holds one question ({len(rows)} rows): held-out questions must be others "
            "than those of training; give at least two, a few hundred for numbers that mean something"
        )
    kept = min(max(1, round(share * len(questions))), len(questions) - 1)
    held_out = set(questions[:kept])
    return {side: [row for row in rows if (row[0] in held_out) == side] for side in (False, True)}


def _text(value: Any) -> str:
    """An answer as text; empty for what is neither text nor a finite number."""
    if isinstance(value, str):
        return value
    whole = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if whole or (isinstance(value, float) and math.isfinite(value)) else ""
