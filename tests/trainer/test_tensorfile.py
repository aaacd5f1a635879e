"""Files written tensor by tensor are those that safetensors writes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from trainer.tensorfile import Entry, write_tensors


def entry(name: str, *parts: torch.Tensor, shape: tuple[int, ...] | None = None) -> Entry:
    return Entry(name, parts[0].shape if shape is None else shape, lambda: iter(parts))


def test_the_bytes_are_those_of_safetensors(tmp_path: Path) -> None:
    tensors = {
        "z.b": torch.randn(3, 5),
        "step": torch.tensor(7.0),
        "a": torch.randn(2, 3).T,
        "é": torch.ones(0),
    }
    write_tensors(tmp_path / "own", [entry(name, t) for name, t in tensors.items()], {"progress": '{"a":1}'})
    save_file({n: t.contiguous() for n, t in tensors.items()}, tmp_path / "theirs", {"progress": '{"a":1}'})
    assert (tmp_path / "own").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_a_tensor_may_come_in_parts(tmp_path: Path) -> None:
    parts = torch.randn(4), torch.randn(2, 3)
    write_tensors(tmp_path / "file", [entry("flat", *parts, shape=(10,))], {})
    assert torch.equal(load_file(tmp_path / "file")["flat"], torch.cat([p.flatten() for p in parts]))


def test_what_does_not_fit_its_header_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="16 bytes instead of 20"):
        write_tensors(tmp_path / "file", [entry("a", torch.ones(4), shape=(5,))], {})
    with pytest.raises(TypeError, match="float64"):
        write_tensors(tmp_path / "file", [entry("a", torch.ones(4).double())], {})
