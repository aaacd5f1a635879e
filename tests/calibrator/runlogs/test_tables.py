"""CSV as spreadsheets, pandas and trackers write it."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from calibrator.errors import LogError
from calibrator.runlogs.judged import JudgedLog

DEATH, ROWS = 120, 200
Log = Callable[..., JudgedLog]
Course = Callable[..., list[float]]


def table(columns: list[str], rows: Iterable[tuple[Any, ...]], mark: str = ",") -> str:
    return "".join(mark.join(map(str, row)) + "\n" for row in (tuple(columns), *rows))


@pytest.fixture
def judged(log: Log) -> Log:
    def judged(text: str, **fields: Any) -> JudgedLog:
        return log(text, name="log.csv", **{"sync_interval": 1, **fields})

    return judged


@pytest.mark.parametrize("start", [0, 1])
def test_update_counts_updates(judged: Log, course: Course, start: int) -> None:
    rows = [(i + start, reward, 1e-6) for i, reward in enumerate(course(dead_from=DEATH))]
    found = judged(table(["update", "reward", "learning_rate"], rows), updates_per_row=4)
    assert (found.verdict.verdict, found.verdict.updates) == ("collapsed", ROWS)


def test_step_counts_rows_of_some_updates(judged: Log, course: Course) -> None:
    rows = [(i, reward, 1e-6) for i, reward in enumerate(course(dead_from=DEATH))]
    found = judged(table(["step", "reward", "lr"], rows), updates_per_row=4, sync_interval=4)
    assert found.verdict.updates == 4 * ROWS
    assert found.verdict.cumulative_lr_total == pytest.approx(4 * ROWS * 1e-6)


@pytest.mark.parametrize("per_row", [1, 10])
def test_steps_that_rise_by_ten(judged: Log, course: Course, per_row: int) -> None:
    """A step is an update, whether a row is said to be 1 update or the 10 that lie between rows."""
    rows = [(10 * (i + 1), reward, 1e-6) for i, reward in enumerate(course(dead_from=DEATH))]
    found = judged(table(["step", "reward", "lr"], rows), updates_per_row=per_row)
    assert found.verdict.updates == 10 * ROWS
    assert found.verdict.cumulative_lr_total == pytest.approx(10 * ROWS * 1e-6)


def test_semicolons_marks_and_line_ends_of_windows(judged: Log, course: Course) -> None:
    rows = [(i, reward, 1e-6) for i, reward in enumerate(course(dead_from=DEATH))]
    text = "\ufeff" + table(["Step", "Reward", "LR"], rows, ";").replace("\n", "\r\n")
    assert judged(text).verdict.verdict == "collapsed"


def test_a_torn_last_line(judged: Log, course: Course) -> None:
    rows = [(i, reward, 1e-6) for i, reward in enumerate(course())]
    text = table(["update", "reward", "lr"], rows)
    assert judged(text[: text.rindex(",")]).verdict.updates == ROWS - 1


def test_nan_in_rows_of_evaluations_is_a_gap(judged: Log, course: Course) -> None:
    rows: list[tuple[Any, ...]] = []
    for i, reward in enumerate(course()):
        rows.append((i, reward, 0.2, 1e-6, ""))
        if i % 20 == 19:
            rows.append((i, "nan", "nan", "nan", reward))
    found = judged(table(["update", "reward", "grad_norm", "lr", "eval/acc"], rows))
    assert (found.verdict.verdict, found.verdict.updates) == ("stable", ROWS)


def test_nan_in_every_second_row_is_a_gap_up_to_the_end(judged: Log, course: Course) -> None:
    rows = [(i, "NaN" if i % 2 else reward, 0.2, 1e-6) for i, reward in enumerate(course())]
    assert judged(table(["update", "reward", "grad_norm", "lr"], rows)).verdict.verdict == "stable"


def test_nan_in_the_last_row_alone_is_the_end(judged: Log, course: Course) -> None:
    rows = [(i, reward, "nan" if i == 82 else 0.2, 1e-6) for i, reward in enumerate(course(83))]
    found = judged(table(["update", "reward", "grad_norm", "lr"], rows))
    assert (found.verdict.verdict, found.verdict.onset_updates) == ("diverged", (82.0, 83.0))


def test_evaluations_alone_with_a_decaying_rate(judged: Log, course: Course) -> None:
    rows = [(20 * i, reward, 1e-6 * (1 - i / 40)) for i, reward in enumerate(course()[::5])]
    found = judged(table(["update", "eval/accuracy", "learning_rate"], rows))
    assert (found.verdict.verdict, found.verdict.updates) == ("stable", 780)
    assert found.verdict.cumulative_lr_total == pytest.approx(sum(1e-6 * (1 - u / 800) for u in range(780)))


def test_export_of_a_tracker(judged: Log, course: Course) -> None:
    columns = [
        '"Step"',
        '"a - train/reward"',
        '"a - train/reward__MIN"',
        '"a - train/reward__MAX"',
        '"a - train/lr"',
    ]
    rows = [(i, reward, 0.0, 1.0, 1e-6) for i, reward in enumerate(course(dead_from=DEATH))]
    found = judged(table(columns, rows))
    assert (found.log.reward_column, found.verdict.verdict) == ("a - train/reward", "collapsed")
    assert found.verdict.cumulative_lr_total == pytest.approx(ROWS * 1e-6)


def test_export_of_two_runs_is_a_choice(judged: Log, course: Course) -> None:
    columns = ["Step", "a - train/reward", "b - train/reward", "a - train/lr", "b - train/lr"]
    dead, alive = course(dead_from=DEATH), course()
    text = table(columns, [(i, dead[i], alive[i], 1e-6, 3e-6) for i in range(ROWS)])
    with pytest.raises(LogError, match=r"2 runs .*--reward-column"):
        judged(text)
    found = judged(text, reward_column="b - train/reward")
    assert found.verdict.verdict == "stable"
    assert found.verdict.cumulative_lr_total == pytest.approx(ROWS * 3e-6)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0,0.3,1e-6\n1,0.4,1e-6\n", "first line of a CSV must name its columns"),
        ("update,lr\n0,1e-6\n1,1e-6\n", "--reward-column"),
        ("update,eval/acc,eval/score\n0,0.3,0.1\n1,0.4,0.2\n", "one of eval/acc, eval/score"),
        ('update,reward\n"0,0.1' + "\n1,2" * 40_000, "no readable CSV"),
    ],
)
def test_what_cannot_be_read_is_refused(judged: Log, text: str, words: str) -> None:
    with pytest.raises(LogError, match=words):
        judged(text)


@pytest.mark.parametrize(
    ("content", "name", "cause"),
    [
        (gzip.compress(b'{"step": 1, "reward": 0.5}\n'), "metrics.jsonl.gz", r"compressed \(gzip\): unpack"),
        (b"<!DOCTYPE html>\n<html><body>step: 1</body></html>", "metrics.jsonl", "web page"),
        (bytes(range(256)) * 8, "metrics.jsonl", "binary"),
        (b"Dear all,\nthe run went well.\n", "metrics.jsonl", "text, but no rows"),
        (b"update;reward;lr\n0;0,31;1e-06\n1;0,32;1e-06\n", "run.csv", "decimal commas.*with points"),
        (b"update,reward,lr\n0,0,31,1e-06\n1,0,32,1e-06\n", "run.csv", "decimal commas, or other"),
    ],
    ids=["gzip", "page", "binary", "prose", "decimal commas", "too many cells"],
)
def test_the_likely_cause_is_named(log: Log, content: bytes, name: str, cause: str) -> None:
    with pytest.raises(LogError, match=cause) as error:
        log(content, name=name)
    assert "known to be a reward" not in str(error.value)


def test_unknown_rates_are_said_once(log: Log) -> None:
    found = log([{"step": i, "reward": 0.5} for i in range(30)])
    assert sum("rate" in warning for warning in found.verdict.warnings) == 1
