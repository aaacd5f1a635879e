"""The view of a training run: what it shows, when it is drawn, and what runs of any kind leave it to show."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from calibrator.cli.live import stage_title
from calibrator.cli.training import BLOCKS, CURVE, TrainingView, cells, clock, curve, redraws, time_left
from trainer.config import RunConfig
from trainer.metrics import MetricsRow

RUN = RunConfig(updates=100)


def row(update: int, **fields: Any) -> MetricsRow:
    base = {
        "update": update,
        "cumulative_lr": 1e-3 * (update + 1),
        "learning_rate": 1e-3,
        "reward_mean": update / 100,
        "lag_mean": 1.5,
        "lag_max": 3,
        "cap_activation": 0.125,
        "tokens_generated": 640,
    }
    probe = {"probe_version": update + 1, "probe_reward": update / 100, "probe_se": 0.01}
    return {**base, **(probe if (update + 1) % 8 == 0 else {}), **fields}  # type: ignore[typeddict-item]


def console(*, terminal: bool, **options: Any) -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, force_terminal=terminal, width=100, **options), file


def test_without_a_terminal_there_are_plain_lines() -> None:
    to, file = console(terminal=False)
    rows: list[MetricsRow] = []
    with TrainingView(RUN, to) as view:
        for update in range(100):
            rows.append(row(update))
            view.watch(rows)
    lines = file.getvalue().splitlines()
    assert "\x1b" not in file.getvalue()
    assert [line.split("/")[0].split()[1] for line in lines] == ["32", "56", "80"]
    assert "L 0.032  held-out 0.310 +- 0.010  lag 3  cap acts on 12%" in lines[0]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("first", [0, 40])
@pytest.mark.parametrize("made", [0, 1, 3, 60])
def test_the_live_view_shows_runs_that_began_or_went_on(made: int, first: int, encoding: str) -> None:
    buffer = io.BytesIO()
    file = io.TextIOWrapper(buffer, encoding=encoding)
    to = Console(file=file, force_terminal=True, width=80, height=30, no_color=True)
    rows = [row(update) for update in range(first)]
    with TrainingView(RUN, to) as view:
        for update in range(first, first + made):
            rows.append(row(update))
            view.watch(rows)
    file.flush()
    shown = buffer.getvalue().decode(encoding)
    assert f"{len(rows) if made else 0}/100" in shown
    assert ("at most about" in shown.split("elapsed")[-1]) == (made > 1)
    assert ("cap acts on 12%" in shown) == (made > 0)


def test_a_run_shorter_than_a_probe_interval_shows_where_it_started() -> None:
    shown = dict(cells([row(0, initial_reward=0.41), row(1)], plain=True))
    assert shown["held-out"] == "0.410 at the start"
    assert "held-out" not in dict(cells([row(0)], plain=True))


def test_dumb_terminals_and_files_get_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert redraws(console(terminal=True)[0])
    assert not redraws(console(terminal=False)[0])
    monkeypatch.setenv("TERM", "dumb")
    assert not redraws(console(terminal=True)[0])


def test_curves_run_from_the_lowest_to_the_highest() -> None:
    assert curve([0.0, 1.0]) == BLOCKS[0] + BLOCKS[-1]
    assert curve([0.5]) == BLOCKS[0]
    assert len(curve([float(i) for i in range(1000)])) == CURVE
    assert curve([float(i) for i in range(8)]) == BLOCKS


def test_times_and_titles() -> None:
    assert (clock(61), clock(3661)) == ("1:01", "1:01:01")
    assert time_left(10.0, 5, 30) == "at most about 1:00 left"
    assert time_left(10.0, 0, 30) == "time left unknown"
    assert stage_title("round-2", 4) == "round 2 of at most 4"
    assert stage_title("confirmation", 4) == "confirmation"
