"""Whatever is done to a log that does not change the run, or whatever bytes it holds."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calibrator.errors import CalibratorError
from calibrator.runlogs.judged import JudgedLog, judge_log
from calibrator.runlogs.settings import settings_of

CASES = Path(__file__).parents[2] / "data" / "cases"
quick = settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
LINES = ("verl-collapse", "dip-that-recovers", "slow-decline", "reward-rises-into-collapse", "never-trained")


def judged(content: bytes, name: str = "log.jsonl", **fields: Any) -> JudgedLog:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        return judge_log(path, settings_of(fields, source="test"))


def rows_of(case: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows and settings of a case in JSON lines."""
    fields = json.loads((CASES / case / "case.json").read_text())
    rows = [json.loads(line) for line in (CASES / case / "metrics.jsonl").read_text().splitlines()]
    return rows, {key: value for key, value in fields.items() if key not in ("what", "expect")}


def written(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def answer(found: JudgedLog) -> tuple[Any, ...]:
    verdict = found.verdict
    numbers = (
        verdict.onset_updates,
        verdict.cumulative_lr_at_onset,
        verdict.updates,
        verdict.cumulative_lr_total,
    )
    return (verdict.verdict, *numbers)


@pytest.mark.parametrize("case", LINES)
@quick
@given(scale=st.floats(1e-3, 1e4), shift=st.floats(-1e4, 1e4))
def test_the_unit_of_the_reward_does_not_matter(case: str, scale: float, shift: float) -> None:
    rows, fields = rows_of(case)
    plain = judged(written(rows), **fields)
    for row in rows:
        for name in ("critic/rewards/mean", "critic/score/mean"):
            row["data"][name] = scale * row["data"][name] + shift
    fields["reward_floor"] = scale * fields["reward_floor"] + shift
    assert answer(judged(written(rows), **fields)) == answer(plain)


@pytest.mark.parametrize("case", LINES)
@quick
@given(data=st.data())
def test_doubled_rows_and_their_order_do_not_matter(case: str, data: st.DataObject) -> None:
    rows, fields = rows_of(case)
    plain = judged(written(rows), **fields)
    again = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=60))
    order = np.random.default_rng(data.draw(st.integers(0, 99))).permutation(len(rows) + len(again))
    doubled = [*rows, *(rows[i] for i in again)]
    assert answer(judged(written([doubled[i] for i in order]), **fields)) == answer(plain)


rates = st.one_of(
    st.floats(0, 1e-3), st.none(), st.sampled_from([float("nan"), float("inf"), -1e-6, "0.000"])
)


@quick
@given(values=st.lists(rates, min_size=1, max_size=40), unit=st.integers(1, 5))
def test_the_cumulative_rate_never_decreases(values: list[Any], unit: int) -> None:
    rows = [{"step": i, "reward": 0.5, "lr": value} for i, value in enumerate(values)]
    curve = judged(written(rows), updates_per_row=unit).log.curve
    assert curve.updates == unit * len(values)
    total = [curve.cumulative_lr(version) for version in np.linspace(0, curve.updates, 50)]
    known = np.array(total)[np.isfinite(total)]
    assert (np.diff(known) >= -1e-15).all()


CELLS = st.one_of(
    st.floats(),
    st.integers(),
    st.none(),
    st.booleans(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
)
NAMES = """step update reward lr grad_norm loss train/step rollout/step eval/acc data epoch version reward_mean
    probe_reward probe_version non_finite lag_max"""
KEYS = st.sampled_from(NAMES.split())
JSON_ROWS = st.lists(
    st.dictionaries(KEYS, st.one_of(CELLS, st.dictionaries(KEYS, CELLS, max_size=3))), max_size=20
).map(written)
PIECES = """step: 1 - reward : {' ' } {" " , nan 0.5 Train|step|1/2|done \u2502 [ "log_history": update,reward 1e999 lr
    = brain.Event: -5 999999999999999999999 ; null inf"""
BYTES = [piece.replace("|", " ").encode() for piece in PIECES.split()]
FRAGMENTS = st.lists(
    st.sampled_from([*BYTES, b" ", b"|", b"\n", b"\r", b"\0", b"\xff\xfe", b"\xef\xbb\xbf"]), max_size=80
).map(b"".join)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    content=st.one_of(st.binary(max_size=300), JSON_ROWS, FRAGMENTS),
    name=st.sampled_from(["log.jsonl", "log.csv", "trainer_state.json", "events.out.tfevents.1", "x"]),
)
def test_any_bytes_end_in_a_verdict_or_a_clear_error(content: bytes, name: str) -> None:
    start = time.process_time()
    try:
        told = str(judged(content, name).path)
    except CalibratorError as error:
        told = str(error)
    assert name in told
    assert time.process_time() - start < 5.0


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'[{"a":' * 100_000,
        b'{"step": 1' + b"0" * 10_000 + b', "reward": 1}\n',
        b"x" * 5_000_000,
        b"step:1 - " * 200_000,
        b"{'" * 500_000,
        b"{'a': " + b"'" * 500_000 + b"}",
        b"{" + b"'" * 400_000 + b"}\n",
        b"\n".join(b'{"step": %d, "reward%d": 0.5}' % (i, i) for i in range(20_000)),
        b"\n".join(b'{"c%d": 1}' % i for i in range(200_000)),
        b"a,b\n" + b"1," * 500_000,
        b"step 1 " + b"a=1, " * 200_000,
        b"Train step 1/2 done\n" + b"| " * 1_000_000,
        b"Train step 1/2 done\n" + b" " * 1_000_000,
        b"step:1" + b" " * 1_000_000 + b"-",
        b"step " * 1_000_000,
        b"'a'" + b" " * 1_000_000,
        b"{'" + b"'a': 'b', " * 100_000 + b"}",
        b"\r" * 1_000_000 + b"step:1 - reward:1",
        b'"' * 3_000_000,
        b"-" * 3_000_000,
    ],
    ids=lambda content: content[:12].decode(),
)
def test_hostile_bytes_are_answered_quickly(content: bytes) -> None:
    start = time.process_time()
    for name in ("log", "log.csv", "a.json"):
        with contextlib.suppress(CalibratorError):
            judged(content, name)
    assert time.process_time() - start < 3 * 5.0
