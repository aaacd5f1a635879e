"""What logs really look like: resumed, doubled, torn, renumbered, with gaps, nulls and numbers that are none."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrator.errors import LogError
from calibrator.runlogs.judged import JudgedLog, judge_log
from calibrator.runlogs.settings import settings_of

DEATH, ROWS = 120, 200
Log = Callable[..., JudgedLog]
Course = Callable[..., list[float]]
Verl = Callable[..., list[dict[str, Any]]]
VERL = {"framework": "verl", "updates_per_row": 1, "sync_interval": 1}


def warned(found: JudgedLog, words: str) -> bool:
    return any(words in warning for warning in found.verdict.warnings)


# --- rows that come twice --------------------------------------------------------------------------


def test_rows_may_be_doubled_and_shuffled(log: Log, course: Course, verl: Verl) -> None:
    rows = verl(course(dead_from=DEATH))
    plain = log(rows, **VERL).verdict
    assert plain.verdict == "collapsed"
    shuffled = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]
    for other in (rows + rows, [row for row in rows for _ in range(2)], shuffled, shuffled + rows[:50]):
        found = log(other, **VERL).verdict
        assert found.model_copy(update={"warnings": []}) == plain.model_copy(update={"warnings": []})


def test_the_last_write_counts_after_a_resume(log: Log, course: Course, verl: Verl) -> None:
    rate = {"actor/lr": lambda i: 1e-6 * (i + 1)}
    found = log(verl(course()[:182], **rate) + verl(course(seed=1), **rate)[150:], **VERL)
    assert found.verdict.updates == ROWS
    assert found.verdict.cumulative_lr_total == pytest.approx(1e-6 * ROWS * (ROWS + 1) / 2)
    assert warned(found, "went back to update 150")


def test_a_branch_that_was_given_up_does_not_count(log: Log, course: Course, verl: Verl) -> None:
    """Died at 182, went on from 150, died again at 160: the run made 160 updates."""
    found = log(verl(course()[:182]) + verl(course(seed=1)[150:160], start=151), **VERL)
    assert found.verdict.updates == 160
    assert found.verdict.cumulative_lr_total == pytest.approx(160e-6)


def test_a_death_that_was_undone_by_a_resume_is_none(log: Log, course: Course, verl: Verl) -> None:
    dead, alive = verl(course(160, dead_from=100)), verl(course(seed=1))
    assert log(dead + alive[90:], **VERL).verdict.verdict == "stable"


def test_a_false_start_is_left_out(log: Log, course: Course, verl: Verl) -> None:
    found = log(verl(course(12, seed=3)) + verl(course(dead_from=DEATH)), **VERL)
    assert (found.verdict.updates, found.verdict.verdict) == (ROWS, "collapsed")
    assert warned(found, "went back to update 0")


def test_two_runs_after_each_other_are_refused(log: Log, course: Course, verl: Verl) -> None:
    with pytest.raises(LogError, match="two runs in one file"):
        log(verl(course(dead_from=DEATH)) + verl(course(seed=1)), **VERL)


def test_two_runs_side_by_side_are_refused(log: Log, course: Course, verl: Verl) -> None:
    pairs = zip(verl(course()), verl(course(seed=1)), strict=True)
    with pytest.raises(LogError, match="two runs"):
        log([row for pair in pairs for row in pair], **VERL)


def test_two_runs_without_steps_are_refused(log: Log, course: Course) -> None:
    lines = [
        str({"loss": 0.0, "grad_norm": 0.2, "reward": reward, "epoch": round(i / 50, 2)})
        for run in (course(), course(seed=1))
        for i, reward in enumerate(run)
    ]
    with pytest.raises(LogError, match="two runs"):
        log("\n".join(lines) + "\n")


def test_the_rows_of_a_step_may_be_its_updates(log: Log, course: Course) -> None:
    rows = [
        {"step": i + 1, "reward": reward, "grad_norm": 0.2 + 0.01 * j + 0.0001 * i, "lr": 1e-6}
        for i, reward in enumerate(course(dead_from=DEATH))
        for j in range(4)
    ]
    found = log(rows, sync_interval=4)
    assert found.verdict.updates == 4 * ROWS
    assert found.verdict.onset_updates is not None
    assert 4 * DEATH <= found.verdict.onset_updates[0] < found.verdict.onset_updates[1] <= 4 * (DEATH + 10)


# --- steps -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [0, 1])
def test_steps_from_0_and_from_1_are_the_same_updates(
    log: Log, course: Course, verl: Verl, start: int
) -> None:
    found = log(verl(course(dead_from=DEATH), start=start), **VERL)
    assert found.verdict.updates == ROWS
    assert found.verdict.onset_updates == log(verl(course(dead_from=DEATH)), **VERL).verdict.onset_updates


def test_an_evaluation_before_training_does_not_shift_the_steps(log: Log, course: Course, verl: Verl) -> None:
    before = [{"step": 0, "data": {"val-core/gsm8k/acc/mean@1": 0.3}}]
    found = log(before + verl(course()), **VERL)
    assert (found.verdict.updates, found.log.curve.rewards.version[0]) == (ROWS, 0.0)


def test_missing_steps_are_filled_from_the_rows_around(log: Log, course: Course) -> None:
    rows = [
        {"reward": reward, "lr": 1e-6, "grad_norm": 0.2, **({} if i % 7 == 3 else {"step": i})}
        for i, reward in enumerate(course(dead_from=DEATH))
    ]
    found = log(rows, sync_interval=1)
    assert found.verdict.updates == ROWS
    assert found.verdict.cumulative_lr_total == pytest.approx(ROWS * 1e-6)
    assert warned(found, "have no step")


def test_trailing_rows_without_reward_count_as_updates(log: Log, course: Course, verl: Verl) -> None:
    tail = [{"step": ROWS + 1 + i, "data": {"actor/lr": 1e-6, "actor/grad_norm": 0.2}} for i in range(3)]
    assert log(verl(course()) + tail, **VERL).verdict.updates == ROWS + 3


@pytest.mark.parametrize("scale", [51_200, 10**12])
def test_steps_that_count_samples_are_refused(log: Log, course: Course, scale: int) -> None:
    rows = [{"step": (i + 1) * scale, "reward": reward} for i, reward in enumerate(course())]
    with pytest.raises(LogError, match="do not count updates"):
        log(rows)


def test_episodes_of_open_instruct_are_no_steps(log: Log, course: Course) -> None:
    rows = [{"global_step": 64 * (i + 1), "scores": reward, "lr": 1e-6} for i, reward in enumerate(course())]
    assert log(rows, framework="open-instruct").verdict.updates == ROWS


def test_a_log_that_begins_late_does_not_know_its_total(log: Log, course: Course, verl: Verl) -> None:
    found = log(verl(course(), start=151), **VERL)
    assert (found.verdict.updates, found.verdict.cumulative_lr_total) == (ROWS + 150, None)
    assert warned(found, "begins at update 150")
    told = log(verl(course(), start=151), learning_rate=1e-6, **VERL)
    assert told.verdict.cumulative_lr_total == pytest.approx((ROWS + 150) * 1e-6)


# --- numbers that are none -------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["nan", "NaN", "inf", "-Infinity", math.nan, math.inf])
@pytest.mark.parametrize("column", ["actor/grad_norm", "actor/pg_loss", "critic/rewards/mean"])
def test_what_is_not_finite_for_good_ends_the_run(
    log: Log, course: Course, verl: Verl, value: str | float, column: str
) -> None:
    rows = verl(course(100), **{"actor/pg_loss": 0.1})
    for row in rows[90:]:
        row["data"][column] = value
    found = log(rows, **VERL).verdict
    assert (found.verdict, found.onset_updates) == ("diverged", (90.0, 91.0))
    assert found.cumulative_lr_at_onset == pytest.approx((90e-6, 91e-6))


def test_a_row_of_four_updates_breaks_in_any_of_them(log: Log, course: Course, verl: Verl) -> None:
    rows = verl(course(100), **{"actor/grad_norm": lambda i: "nan" if i >= 90 else 0.3})
    found = log(rows, framework="verl", updates_per_row=4).verdict
    assert found.onset_updates == (360.0, 364.0)
    assert found.cumulative_lr_at_onset == pytest.approx((360e-6, 364e-6))


@pytest.mark.parametrize("value", [math.nan, "inf"])
def test_a_skipped_update_is_not_the_end(log: Log, course: Course, verl: Verl, value: object) -> None:
    found = log(verl(course(), **{"actor/grad_norm": lambda i: value if i == 90 else 0.3}), **VERL)
    assert found.verdict.verdict == "stable"
    assert warned(found, "skipped updates")


def test_gradients_of_zero_after_nan_are_a_dead_run(log: Log, course: Course, verl: Verl) -> None:
    rows = verl(course(100), **{"actor/grad_norm": lambda i: math.nan if i == 90 else 0.3 * (i < 90)})
    assert log(rows, **VERL).verdict.onset_updates == (90.0, 91.0)


def test_nulls_for_good_in_loss_and_gradient_are_nan(log: Log, course: Course, verl: Verl) -> None:
    broken = {
        "actor/grad_norm": lambda i: None if i >= 90 else 0.3,
        "actor/pg_loss": lambda i: None if i >= 90 else 0.1,
    }
    assert log(verl(course(100), **broken), **VERL).verdict.onset_updates == (90.0, 91.0)
    one = {"actor/grad_norm": lambda i: None if i >= 90 else 0.3, "actor/pg_loss": 0.1}
    assert log(verl(course(100), **one), **VERL).verdict.verdict == "stable"
    often = {name: lambda i: None if i % 2 else 0.3 for name in broken}
    assert log(verl(course(101), **often), **VERL).verdict.verdict == "stable"


def test_zero_loss_and_zero_gradient_norm_can_be_normal(log: Log, course: Course, verl: Verl) -> None:
    rows = verl(course(), **{"actor/grad_norm": 0.0, "actor/pg_loss": 0.0})
    assert log(rows, **VERL).verdict.verdict == "stable"


# --- rates -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.0, "nan", None, -1e-6])
def test_a_useless_rate_leaves_the_verdict_and_is_asked_for(
    log: Log, course: Course, verl: Verl, value: object
) -> None:
    found = log(verl(course(dead_from=DEATH), **{"actor/lr": value}), **VERL)
    assert found.verdict.verdict == "collapsed"
    assert (found.verdict.cumulative_lr_total, found.verdict.cumulative_lr_at_onset) == (None, None)
    assert warned(found, "--learning-rate")
    with pytest.raises(LogError, match="--learning-rate"):
        found.run()


def test_a_decaying_rate_is_summed_not_multiplied(log: Log, course: Course, verl: Verl) -> None:
    found = log(verl(course(), **{"actor/lr": lambda i: 1e-6 * (1 - i / ROWS)}), **VERL)
    assert found.verdict.cumulative_lr_total == pytest.approx(1e-6 * (ROWS + 1) / 2)
    assert found.run().learning_rate == pytest.approx(1e-6)


def test_a_decaying_rate_between_sparse_rows_is_interpolated_and_said(
    log: Log, course: Course, verl: Verl
) -> None:
    rows = verl(course(), **{"actor/lr": lambda i: 1e-6 * (1 - i / ROWS)})
    found = log(rows[::5], **VERL)
    assert found.verdict.cumulative_lr_total == pytest.approx(
        float(np.sum(1e-6 * (1 - np.arange(196) / ROWS)))
    )
    assert warned(found, "interpolated linearly")
    constant = log(verl(course())[::5], **VERL)
    assert not warned(constant, "interpolated")


def test_the_rate_that_is_passed_wins_and_a_difference_is_said(log: Log, course: Course, verl: Verl) -> None:
    found = log(verl(course()), learning_rate=5e-6, **VERL)
    assert found.verdict.cumulative_lr_total == pytest.approx(ROWS * 5e-6)
    assert warned(found, "5e-06")
    assert not warned(log(verl(course()), learning_rate=1e-6, **VERL), "rate")


def test_a_scaled_rate_is_read_in_its_unit(log: Log, course: Course) -> None:
    rows = [{"step": i, "reward": reward, "actor/lr(1e-4)": 0.01} for i, reward in enumerate(course())]
    assert log(rows).verdict.cumulative_lr_total == pytest.approx(ROWS * 1e-6)


# --- columns ---------------------------------------------------------------------------------------


def test_the_first_known_name_is_the_reward_and_the_others_are_said(
    log: Log, course: Course, verl: Verl
) -> None:
    rows = verl(
        course(), **{"critic/score/mean": lambda i: 0.9 - i / 1000, "format/reward": lambda i: i / 200}
    )
    found = log(rows, **VERL)
    assert found.log.reward_column == "critic/rewards/mean"
    assert warned(found, "critic/score/mean")
    assert log(rows, reward_column="format/reward", **VERL).log.reward_column == "format/reward"


def test_no_reward_lists_the_columns_that_there_are(log: Log) -> None:
    rows = [{"step": i, "throughput": 1.0, "name": "x"} for i in range(9)]
    with pytest.raises(LogError, match=r"--reward-column.*columns with numbers are step, throughput"):
        log(rows)
    with pytest.raises(LogError, match=r"no column 'rewardd'.*throughput"):
        log(rows, reward_column="rewardd")


def test_several_unknown_rewards_are_a_choice(log: Log) -> None:
    rows = [{"step": i, "my_reward_a": 0.5, "my_reward_b": 0.1} for i in range(9)]
    with pytest.raises(LogError, match=r"--reward-column with one of my_reward_a, my_reward_b"):
        log(rows)


def test_an_accuracy_of_zero_behind_a_format_reward(log: Log, course: Course) -> None:
    accuracy = course(dead_from=DEATH)
    rows = [
        {
            "step": i + 1,
            "reward": 0.5 * right + min(1.0, 0.5 + i / 200),
            "rewards/accuracy_reward/mean": right,
            "rewards/format_reward/mean": min(1.0, 0.5 + i / 200),
            "learning_rate": 1e-6,
        }
        for i, right in enumerate(accuracy)
    ]
    found = log(rows, framework="trl", sync_interval=1)
    assert found.verdict.verdict == "collapsed"
    assert "accuracy_reward" in found.verdict.evidence[0].sentence


def test_evaluations_may_testify_beside_a_rising_reward(log: Log, course: Course, verl: Verl) -> None:
    rows, held_out = verl(course()), course(dead_from=100)
    for i in range(0, ROWS, 10):
        rows.append({"step": i + 1, "data": {"val-core/gsm8k/acc/mean@1": held_out[i]}})
    found = log(rows, **VERL)
    assert found.verdict.verdict == "collapsed"
    assert warned(found, "val-core/gsm8k/acc/mean@1")


@pytest.mark.parametrize(
    "column",
    ["rewards/format_reward/mean", "response_length/mean", "val-core/x/acc/std@4", "rollout/rewards"],
)
def test_what_may_fall_without_harm_does_not_testify(
    log: Log, course: Course, verl: Verl, column: str
) -> None:
    falling = course(dead_from=100)
    found = log(verl(course(), **{column: lambda i: falling[i]}), **VERL)
    assert found.verdict.verdict == "stable"


def test_nested_objects_and_foreign_lines_between_rows(log: Log, course: Course) -> None:
    rows = [
        json.dumps({"iteration": i, "train": {"reward": reward, "lr": 1e-6}})
        for i, reward in enumerate(course(dead_from=DEATH))
    ]
    rows[70:70] = ["WARNING: slow", '{"config": {"lr": "auto"}}', "[1, 2]"]
    found = log("\n".join(rows) + "\n")
    assert (found.verdict.verdict, found.verdict.updates) == ("collapsed", ROWS)
    assert warned(found, "no JSON objects (line 71")


def test_two_columns_of_steps_that_disagree_are_said(log: Log, course: Course) -> None:
    rows = [{"step": 4 * i + 3, "global_step": i, "reward": reward} for i, reward in enumerate(course())]
    found = log(rows, updates_per_row=4)
    assert found.verdict.updates == 4 * ROWS
    assert warned(found, "counted by global_step; step rises differently")
    rows = [{"step": i + 1, "global_step": i, "reward": reward} for i, reward in enumerate(course())]
    assert not warned(log(rows, updates_per_row=4), "rises differently")


def test_a_cap_that_never_bound_is_said(log: Log, course: Course, verl: Verl) -> None:
    rows = verl(course(), **{"training/off_policy/trajectory_staleness_worst/max": 1})
    found = log(rows, framework="verl", sync_interval=1, max_lag=7)
    assert found.max_lag == 7
    assert warned(found, "largest lag in the log is 1")
    assert warned(log(verl(course()), framework="verl", sync_interval=4, max_lag=1), "less than S - 1 = 3")


def test_null_in_a_settings_file_is_as_if_left_out(log: Log, course: Course, verl: Verl) -> None:
    found = log(verl(course()), framework=None, reward_floor=None, horizon=None, updates_per_row=None)
    assert found.settings.reward_floor == 0.0


@pytest.mark.parametrize(
    ("name", "known"), [("Prime_RL", "prime-rl"), ("own", "calibrate"), ("miles", "slime")]
)
def test_frameworks_by_other_names(log: Log, course: Course, verl: Verl, name: str, known: str) -> None:
    assert log(verl(course(20)), framework=name).settings.framework == known


@pytest.mark.parametrize("shape", ["each row twice", "all of it twice", "old rows at the end"])
def test_a_resumed_log_that_is_doubled_as_well(log: Log, course: Course, verl: Verl, shape: str) -> None:
    resumed = verl(course()[:182]) + verl(course(seed=1))[150:]
    plain = log(resumed, **VERL).verdict
    other = {
        "each row twice": [row for row in resumed for _ in range(2)],
        "all of it twice": resumed + resumed,
        "old rows at the end": resumed + resumed[155:170],
    }[shape]
    found = log(other, **VERL)
    assert found.verdict.model_copy(update={"warnings": []}) == plain.model_copy(update={"warnings": []})
    assert warned(found, "rows were written twice")


def test_equal_rows_without_steps_are_different_updates(log: Log) -> None:
    rows = [str({"loss": 0.0, "grad_norm": 0.0, "learning_rate": 1e-6, "reward": 0.0})] * 60
    assert log("\n".join(rows) + "\n").verdict.updates == 60


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("A/checkpoint-200/trainer_state.json", "A"),
        ("A/checkpoints/global_step_40/metrics.jsonl", "A"),
        ("A/global_step40/log.jsonl", "A"),
        ("A/metrics.jsonl", "A"),
        ("checkpoint-one/metrics.jsonl", "checkpoint-one"),
        ("A/checkpoint-200/mine.jsonl", "mine"),
    ],
)
def test_a_run_is_named_after_its_folder_not_after_a_checkpoint(
    tmp_path: Path, place: str, name: str
) -> None:
    path = tmp_path / place
    path.parent.mkdir(parents=True)
    path.write_text('{"step": 1, "reward": 0.5}\n')
    assert judge_log(path, settings_of({}, source="test")).name == name


def test_a_last_row_that_is_written_twice_counts_once(log: Log) -> None:
    found = log([{"step": 1, "reward": 0.5}, {"step": 2, "reward": 0.4}, {"step": 2, "reward": 0.6}])
    assert found.log.curve.rewards.value.tolist() == [0.5, 0.6]
    assert log([{"data": {"step": 0, "reward": 0.1}, "reward": 0.2}]).verdict.updates == 1


@pytest.mark.parametrize(
    ("bad", "end"),
    [
        ([*range(20, 200, 25), 199], None),
        (range(1, 200, 2), None),
        ([50, 51, 198, 199], None),
        ([50, 51, 197, 198, 199], 197),
        ([199], 199),
    ],
    ids=["isolated", "every second", "as long as before", "longer than before", "first of all"],
)
def test_a_run_that_came_back_must_be_away_for_longer(
    log: Log, course: Course, verl: Verl, bad: Any, end: int | None
) -> None:
    rows = verl(course(), **{"actor/grad_norm": lambda i: math.inf if i in bad else 0.3})
    found = log(rows, **VERL)
    assert found.verdict.verdict == ("stable" if end is None else "diverged")
    assert found.verdict.onset_updates == (None if end is None else (end, end + 1))
    assert warned(found, "skipped updates") == (len(bad) > 1)


@pytest.mark.parametrize("apart", [64, 512])
def test_steps_that_may_count_samples_are_asked_for(log: Log, course: Course, apart: int) -> None:
    rows = [{"step": (i + 1) * apart, "reward": reward} for i, reward in enumerate(course())]
    with pytest.raises(LogError, match=f"rises by {apart} a row.*--updates-per-row {apart} if a step is one"):
        log(rows)
    assert log(rows, updates_per_row=apart).verdict.updates == ROWS * apart
    counted = log(rows, updates_per_row=4)
    assert counted.verdict.updates == ROWS * 4
    assert warned(counted, "count samples, and rows are counted")
    assert log(rows[50:], updates_per_row=1).verdict.updates == ROWS
    rows[3]["step"] += 1
    with pytest.raises(LogError, match="not evenly"):
        log(rows, updates_per_row=4)


def test_what_sparse_steps_were_taken_for_is_said_as_it_is(log: Log, course: Course) -> None:
    found = log([{"step": (i + 1) * 10, "reward": reward} for i, reward in enumerate(course())])
    assert found.verdict.updates == ROWS * 10
    assert warned(found, "Steps rise by 10 a row and each is taken as 1 update, so a row as 10")
    assert not warned(found, "A row is taken as 1 update")


@pytest.mark.parametrize(
    "fields", [{"sync_interval": True}, {"learning_rate": True}, {"seed": "1"}, {"horizon": 1.5}]
)
def test_settings_are_not_bent_into_numbers(log: Log, fields: dict[str, Any]) -> None:
    with pytest.raises(LogError, match=next(iter(fields))):
        log([{"step": 1, "reward": 0.5}], **fields)
