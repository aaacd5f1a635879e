"""The comparison with TRL as far as it goes without TRL: turns, our side, the message without its environment."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec = importlib.util.spec_from_file_location(f"bench_{name}", ROOT / f"bench/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, f"bench_{name}", module)
    spec.loader.exec_module(module)
    return module


def test_parties_take_turns_of_whole_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, order = load("against_trl", monkeypatch), []

    def start(name: str, mark: Any) -> None:
        for _ in range(100):
            order.append(name)
            mark()

    turns = bench.Turns(("a", "b"), chunk=3, rounds=2)
    turns.run(start)
    assert "".join(order) == "bbbaaa" + "aaabbb" + "bbbaaa"
    assert {name: len(chunks) for name, chunks in turns.seconds.items()} == {"a": 2, "b": 2}
    assert all(second > 0 for second in turns.seconds["a"] + turns.cpu["b"])


def test_an_error_of_a_party_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = load("against_trl", monkeypatch)

    def start(name: str, mark: Any) -> None:
        raise ValueError(name)

    with pytest.raises(ValueError, match="a"):
        bench.Turns(("a",), chunk=1, rounds=2).run(start)


@pytest.mark.parametrize("name", ["ours", "unshared"])
def test_this_trainers_side_trains_at_long_prompts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    bench, marks = load("against_trl", monkeypatch), []
    bench.party(name, bench.make_model(tmp_path), 64, 1, 2, lambda: marks.append(1))
    sys.modules.pop("against_trl")
    assert len(marks) == 2


def test_long_prompts_ask_for_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = load("against_trl", monkeypatch)
    short, long = (bench.LongSum(n).prompts(np.random.default_rng(0), 5) for n in (9, 64))
    for a, b in zip(short, long, strict=True):
        assert len(b.prompt) == 64
        assert b.prompt.endswith(a.prompt)
        assert a.reference == b.reference


def test_without_the_environment_it_says_how_to_make_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = load("trainer", monkeypatch)
    monkeypatch.setattr(bench, "TRL_PYTHON", tmp_path / "python")
    assert bench.against_trl(1, as_json=True) == 5
    assert "make bench-trl" in capsys.readouterr().err
