"""JSON on stdout: what `--json` of every command prints."""

from __future__ import annotations

import json

from pydantic import BaseModel


def print_record(content: BaseModel | dict[str, object]) -> None:
    """Two spaces deep. Raises ValueError for numbers in a dict that are not finite."""
    if isinstance(content, BaseModel):
        print(escaped(content.model_dump_json(indent=2)))
    else:
        print(json.dumps(content, indent=2, allow_nan=False))


def escaped(text: str) -> str:
    r"""The same JSON with control, format and direction characters of names as `\u202e`: a terminal obeys none."""
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)
