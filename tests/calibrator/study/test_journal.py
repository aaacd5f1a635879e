from __future__ import annotations

from pathlib import Path

import pytest

from calibrator.errors import CorruptStudyError
from calibrator.study.journal import Journal
from calibrator.sweep.design import ProposedRun

PLAN = [ProposedRun("gmc", 4, 1e-3, seed, 100, "test") for seed in range(3)]


def test_plans_and_numbers_survive_reopening(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    journal = Journal(path)
    assert journal.plan("round-1") is None
    journal.record_plan("round-1", PLAN)
    assert journal.numbers("round-1", PLAN) == [0, 1, 2]
    journal.tell(1, 0.5)
    again = Journal(path)
    assert again.plan("round-1") == PLAN
    assert again.numbers("round-1", PLAN) == [0, 1, 2]
    again.tell(1, 0.5)
    assert again.numbers("round-2", PLAN[:1]) == [3]


@pytest.mark.parametrize("cut", [1, 7, 40])
def test_a_torn_last_line_is_dropped(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "journal.log"
    journal = Journal(path)
    journal.record_plan("round-1", PLAN)
    journal.numbers("round-1", PLAN)
    content = path.read_bytes()
    path.write_bytes(content[:-cut])
    again = Journal(path)
    assert again.plan("round-1") == PLAN
    assert again.numbers("round-1", PLAN) == [0, 1, 2]


def test_every_truncation_either_reopens_or_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    journal = Journal(path)
    journal.record_plan("round-1", PLAN)
    content = path.read_bytes()
    for length in range(0, len(content), 97):
        path.write_bytes(content[:length])
        journal = Journal(path)
        if journal.plan("round-1") is None:
            journal.record_plan("round-1", PLAN)
        assert journal.numbers("round-1", PLAN) == [0, 1, 2]


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    Journal(path).record_plan("round-1", PLAN)
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0], b'{"op_code": 3, "wor', *lines[1:]]))
    with pytest.raises(CorruptStudyError, match=r"journal\.log, line 2"):
        Journal(path)


def test_a_lock_left_by_a_killed_process_does_not_delay(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    Journal(path)
    path.with_name("journal.log.lock").touch()
    Journal(path).record_plan("round-1", PLAN)
