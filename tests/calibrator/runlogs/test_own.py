"""Reading of our own metrics: order, torn lines, resumed runs, errors that name file and line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrator.errors import CorruptStudyError
from calibrator.runlogs.own import curve_from_rows, read_metrics
from trainer.metrics import encode_row


def row(update: int, **changes: Any) -> dict[str, Any]:
    base = {
        "update": update,
        "version": update // 4 * 4,
        "learning_rate": 1e-3,
        "cumulative_lr": 1e-3 * (update + 1),
        "reward_mean": 0.5 + update / 1000,
        "reward_se": 0.04,
        "pass_histogram": [2, 1, 1, 1, 1, 2],
        "signal": 0.5,
        "loss": 0.1,
        "grad_norm": 1.0,
        "lag_max": update % 4,
    }
    return {**base, **changes}


def write(path: Path, rows: list[dict[str, Any]], tail: str = "") -> Path:
    path.write_text("".join(encode_row(item) + "\n" for item in rows) + tail)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def test_columns(path: Path) -> None:
    rows = [row(u) for u in range(8)]
    rows[7] |= {"probe_version": 8, "probe_reward": 0.6, "probe_se": 0.02}
    curve = read_metrics(write(path, rows))
    assert curve.updates == 8
    assert curve.rewards.version.tolist() == [0, 0, 0, 0, 4, 4, 4, 4]
    assert curve.rewards.seen.tolist() == list(range(1, 9))
    assert curve.probes is not None
    assert (curve.probes.version[0], curve.probes.value[0], curve.probes.seen[0]) == (8, 0.6, 8)
    assert curve.max_lag == 3
    assert curve.witnesses["signal"].tolist() == [0.5] * 8
    assert curve.cumulative_lr(8) == pytest.approx(8e-3)
    assert curve.warnings == ()


def test_file_and_memory_agree(path: Path) -> None:
    rows = [row(u, grad_norm=math.inf if u == 5 else 1.0) for u in range(8)]
    read, held = read_metrics(write(path, rows)), curve_from_rows(rows)
    assert read.non_finite_update == held.non_finite_update == 5
    np.testing.assert_array_equal(read.rewards.value, held.rewards.value)
    np.testing.assert_array_equal(read.learning_rate, held.learning_rate)


def test_empty_file_is_a_run_of_no_updates(path: Path) -> None:
    curve = read_metrics(write(path, []))
    assert (curve.updates, curve.rewards.value.size, curve.probes) == (0, 0, None)


@pytest.mark.parametrize("tail", ['{"update": 8, "rew', '{"update": 8, "rew\n', "\0\0\0\0"])
def test_torn_last_line_is_ignored(path: Path, tail: str) -> None:
    assert read_metrics(write(path, [row(u) for u in range(8)], tail)).updates == 8


def test_last_write_of_an_update_counts(path: Path) -> None:
    rows = [row(u) for u in range(10)] + [row(u, reward_mean=0.9) for u in range(6, 12)]
    curve = read_metrics(write(path, rows))
    assert curve.updates == 12
    assert curve.rewards.value[5:7].tolist() == [0.505, 0.9]
    assert curve.cumulative_lr(12) == pytest.approx(0.012)
    assert "4 rows were written twice" in curve.warnings[0]


def test_missing_updates_are_unknown_not_zero() -> None:
    curve = curve_from_rows([row(0), row(3)])
    assert curve.updates == 4
    assert np.isnan(curve.learning_rate).tolist() == [False, True, True, False]
    assert "2 updates have no row" in curve.warnings[0]


def test_rate_that_is_not_the_applied_one_is_noticed() -> None:
    rows = [row(u, cumulative_lr=2e-3 * (u + 1)) for u in range(4)]
    assert "rates sum to" in curve_from_rows(rows).warnings[0]


@pytest.mark.parametrize("name", ["group_mass_max", "ess", "grad_cosine"])
def test_overflow_of_a_statistic_is_no_divergence(path: Path, name: str) -> None:
    assert read_metrics(write(path, [row(u, **{name: math.nan}) for u in range(4)])).non_finite_update is None


@pytest.mark.parametrize(
    "line", ["garbage", "[1, 2]", '{"version": 3}', '{"update": 2, "version": [1]}', "null"]
)
def test_garbage_in_the_middle_names_file_and_line(path: Path, line: str) -> None:
    write(path, [row(0), row(1)], line + "\n" + json.dumps(row(3)) + "\n")
    with pytest.raises(CorruptStudyError, match=r"metrics\.jsonl, line 3"):
        read_metrics(path)


def test_a_block_of_zeros_is_named_as_what_it_is(path: Path) -> None:
    """As after a power cut. Of bytes, json takes the zeros for another encoding."""
    write(path, [row(0)], '{"update"\0\0\0\0: 1}\n\0\0{"update": 1}\n' + json.dumps(row(3)) + "\n")
    with pytest.raises(CorruptStudyError, match=r"line 2: not JSON \((?!.*utf-16).*\); move .* away$"):
        read_metrics(path)


def test_non_finite_reward_is_left_out() -> None:
    curve = curve_from_rows([row(0), row(1, reward_mean=None), row(2)])
    assert curve.rewards.value.size == 2


def test_the_mismatch_stands_on_the_rows_that_hold_it(path: Path) -> None:
    rows = [row(u) for u in range(8)]
    rows[4] |= {"mismatch_mean": 1e-7, "mismatch_max": 2e-6, "mismatch_log_ratio": 3e-7}
    curve = read_metrics(write(path, rows))
    assert np.flatnonzero(np.isfinite(curve.witnesses["mismatch_mean"])).tolist() == [4]
    assert curve.witnesses["mismatch_log_ratio"][4] == 3e-7
