"""Which answers can be compared without mathematics: equal text, plain whole numbers, words."""

from __future__ import annotations

import re
from decimal import Decimal

NUMBER = re.compile(r"\$?([+-]?)(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?")
"""A plain number, with separators of thousands and a currency sign allowed."""
FINAL = "####"
"""GSM8K's sign before the final answer, understood in answers and in completions."""
BOXED = re.compile(r"\\boxed\s*\{")
BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
TEXT = re.compile(r"\\(?:text|textbf|textrm|mathrm|mbox)\{([^\\{}]*)\}")


def final_answer(text: str) -> str:
    """What stands after the last `####`, on its line; the whole text when there is none. Without outer space."""
    _, sign, tail = text.rpartition(FINAL)
    return tail.strip().partition("\n")[0].strip() if sign else text.strip()


def unboxed(answer: str) -> str:
    r"""What the last `\boxed{...}` with balanced braces holds, else the whole answer; freed of one `\text{...}`."""
    starts = [match.end() for match in BOXED.finditer(answer)]
    held = (_until_closed(answer, start) for start in reversed(starts))
    inner = next((content for content in held if content is not None), answer).strip()
    words = TEXT.fullmatch(inner)
    return words.group(1).strip() if words else inner


def _until_closed(text: str, start: int) -> str | None:
    """What stands between the brace before `start` and the one that closes it; None when none does."""
    depth = 1
    for match in BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(match.group(), 0)
        if depth == 0:
            return text[start : match.start()]
    return None


def compare_simply(answer: str, completion: str) -> bool | None:
    r"""Whether two final answers agree, where that needs no mathematics; None where it does.

    Of either the last `\boxed{...}` counts. Decimals that differ are left to mathematics, since 0.333333 may stand
    for 1/3.
    """
    answer, completion = unboxed(answer), unboxed(completion)
    if not completion:
        return False
    if _as_text(answer) == _as_text(completion):
        return True
    first, second = plain_number(answer), plain_number(completion)
    if first is not None and second is not None:
        whole = first == first.to_integral_value() and second == second.to_integral_value()
        return True if first == second else False if whole else None
    return None if _is_mathematics(answer) else False


def plain_number(text: str) -> Decimal | None:
    """The number that `text` is, if it is just that."""
    match = NUMBER.fullmatch(text)
    return Decimal("".join(part or "" for part in match.groups()).replace(",", "")) if match else None


def _as_text(answer: str) -> str:
    return " ".join(answer.casefold().split())


def _is_mathematics(answer: str) -> bool:
    """Words alone are compared as text: as mathematics they would be products of letters, in any order."""
    return re.search(r"[\d\\^+*/=<>$]", answer) is not None or len(answer) == 1
