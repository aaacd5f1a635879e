"""Nested settings by dotted keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Change(NamedTuple):
    """A key whose value differs; None where it is missing."""

    key: str
    before: Any
    after: Any


def flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested keys joined by dots: {"a": {"b": 1}} gives {"a.b": 1}."""
    found: dict[str, Any] = {}
    for key, value in content.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """Dotted keys whose values differ, in the order of `before`."""
    old, new = flat(before), flat(after)
    keys = dict.fromkeys([*old, *new])
    return [Change(key, old.get(key), new.get(key)) for key in keys if old.get(key) != new.get(key)]
