"""Dotted keys and what differs between two nested settings."""

from __future__ import annotations

from calibrator.nested import changes, flat


def test_nested_keys_are_joined_by_dots() -> None:
    assert flat({"a": {"b": {"c": 1}, "d": [2]}, "e": None}) == {"a.b.c": 1, "a.d": [2], "e": None}


def test_only_what_differs_is_named() -> None:
    before = {"task": {"name": "sum", "options": {"digits": 8}}, "seed": 0}
    after = {"task": {"name": "sum", "options": {"digits": 9, "base": 10}}, "seed": 0}
    assert changes(before, after) == [("task.options.digits", 8, 9), ("task.options.base", None, 10)]
    assert changes(after, after) == []
