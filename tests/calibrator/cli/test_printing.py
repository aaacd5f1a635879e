"""JSON on stdout says names to programs and nothing to terminals."""

from __future__ import annotations

import json
import unicodedata

import pytest
from pydantic import BaseModel

from calibrator.cli.printing import escaped, print_record

NAME = "a\u202eb\x9bc\x1b\x7fd\u200b\U000e0041\u2028é λ 学"


class Record(BaseModel):
    name: str
    number: float = 1e-6


@pytest.mark.parametrize("content", [Record(name=NAME), {"name": NAME, "number": 1e-6}])
def test_names_reach_programs_but_no_terminal(content: BaseModel, capsys: pytest.CaptureFixture[str]) -> None:
    print_record(content)
    text = capsys.readouterr().out
    assert json.loads(text) == {"name": NAME, "number": 1e-6}
    assert not [c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") and c != "\n"]
    assert text.endswith("}\n")


def test_words_of_any_language_stay() -> None:
    assert escaped('{"name": "é λ 学"}') == '{"name": "é λ 学"}'
