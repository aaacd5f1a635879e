"""What trainers print: dictionaries, `key:value` lines and tables, between everything else that is printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from calibrator.runlogs.judged import JudgedLog

DEATH, ROWS = 120, 200
Log = Callable[..., JudgedLog]
Course = Callable[..., list[float]]


def verl_line(step: int, reward: float, lr: str = "0.000") -> str:
    return f"step:{step} - critic/rewards/mean:{reward:.3f} - actor/grad_norm:0.300 - actor/lr:{lr}"


def hf_line(row: int, reward: float) -> str:
    values = {
        "loss": 0.0,
        "grad_norm": 0.21,
        "learning_rate": 1e-06,
        "reward": reward,
        "epoch": round(row / 50, 2),
    }
    return str(values)


def areal_lines(rewards: list[float]) -> Iterator[str]:
    for i, reward in enumerate(rewards):
        yield f"20261201-10:00:00 trainer INFO: Epoch 1/10 Step {i + 1}/935 Train step {i + 1}/{len(rewards)} done."
        yield "╭──────────────╮"
        yield f"│ ppo_actor/task_reward/avg │ {reward:.4e} │ ppo_actor/update/lr │ 1.0000e-06 │"
        yield "│ ppo_actor/update/grad_norm │ 2.0000e-01 │ timeperf/rollout │ 3.1000e+00 │"


def dead(found: JudgedLog) -> bool:
    onset = found.verdict.onset_updates
    return onset is not None and DEATH <= onset[0] < onset[1] <= DEATH + 10 and found.verdict.updates == ROWS


def test_verl_behind_ray_prefixes_and_colours(log: Log, course: Course) -> None:
    lines = [
        f"\x1b[36m(TaskRunner pid=77)\x1b[0m {verl_line(i + 1, reward)}"
        for i, reward in enumerate(course(dead_from=DEATH))
    ]
    found = log("\n".join(["INFO: starting", *lines, "Traceback (most recent call last):"]) + "\n")
    assert found.log.framework == "verl-console"
    assert dead(found)


def test_a_rate_rounded_to_nothing_is_asked_for(log: Log, course: Course) -> None:
    text = "\n".join(verl_line(i + 1, reward) for i, reward in enumerate(course(dead_from=DEATH)))
    found = log(text + "\n")
    assert (found.verdict.cumulative_lr_total, found.verdict.cumulative_lr_at_onset) == (None, None)
    assert any("--learning-rate" in warning for warning in found.verdict.warnings)
    told = log(text + "\n", learning_rate=2e-6)
    assert told.verdict.cumulative_lr_total == pytest.approx(ROWS * 2e-6)


def test_a_rate_rounded_to_one_digit_is_no_rate(log: Log, course: Course) -> None:
    text = "\n".join(verl_line(i + 1, reward, "0.001") for i, reward in enumerate(course()))
    assert log(text).verdict.cumulative_lr_total is None


def test_a_scaled_rate_is_read_in_its_unit(log: Log, course: Course) -> None:
    lines = [
        verl_line(i + 1, reward, "0.010").replace("actor/lr", "actor/lr(1e-4)")
        for i, reward in enumerate(course())
    ]
    assert log("\n".join(lines) + "\n").verdict.cumulative_lr_total == pytest.approx(ROWS * 1e-6)


def test_gradients_rounded_to_nothing_are_no_evidence(log: Log) -> None:
    """A reward that does not move with gradients 0.000 on a console may have trained; with exact zeros it did not."""
    flat = [verl_line(i + 1, 0.5).replace("0.300", "0.000") for i in range(40)]
    assert "gradient" not in str(log("\n".join(flat) + "\n").verdict.evidence)


def test_numbers_as_numpy_prints_them(log: Log, course: Course) -> None:
    lines = [
        f"step:{i + 1} - critic/rewards/mean:np.float64({reward!r}) - actor/grad_norm:np.float32(0.3) "
        "- actor/lr:np.float64(1e-06)"
        for i, reward in enumerate(course(dead_from=DEATH))
    ]
    found = log("\n".join(lines) + "\n")
    assert dead(found)
    assert found.verdict.cumulative_lr_total == pytest.approx(ROWS * 1e-6)


def test_a_torn_last_line_is_left_out(log: Log, course: Course) -> None:
    text = "\n".join(verl_line(i + 1, reward) for i, reward in enumerate(course()))
    found = log(text[: text.rindex(" - actor/lr")])
    assert found.verdict.updates == ROWS - 1
    assert any("torn" in warning for warning in found.verdict.warnings)


def test_areal_tables(log: Log, course: Course) -> None:
    found = log("\n".join(areal_lines(course(dead_from=DEATH))) + "\n", updates_per_row=1)
    assert found.log.framework == "areal"
    assert dead(found)
    assert found.verdict.cumulative_lr_total == pytest.approx(ROWS * 1e-6)


def test_prime_rl_lines(log: Log, course: Course) -> None:
    lines = [
        f"12:01:33 SUCCESS Step {i} | Time: 12.3s | Reward: {reward:.4f} | Grad. Norm: 0.1 | LR: 1.00e-06 | Tokens: 9"
        for i, reward in enumerate(course(dead_from=DEATH))
    ]
    found = log("\n".join(lines) + "\n")
    assert found.log.framework == "prime-rl"
    assert dead(found)


def test_dictionaries_on_the_line_of_a_progress_bar(log: Log, course: Course) -> None:
    lines = [
        f" {i}%|██  | {i}/200 [00:01<00:02]\r{hf_line(i, reward)}\r {i}%|██"
        for i, reward in enumerate(course(dead_from=DEATH))
    ]
    assert dead(log("\n".join(lines) + "\n"))


def test_numbers_as_text_in_dictionaries(log: Log, course: Course) -> None:
    lines = [
        str({"loss": "0.0", "grad_norm": "0.21", "learning_rate": "1e-06", "reward": f"{reward:.4g}"})
        for reward in course(dead_from=DEATH)
    ]
    found = log("\n".join(lines) + "\n")
    assert found.log.framework == "trl-console"
    assert dead(found)
    assert found.verdict.cumulative_lr_total == pytest.approx(ROWS * 1e-6)


def test_evaluations_and_summaries_are_no_updates(log: Log, course: Course) -> None:
    lines = [hf_line(i, reward) for i, reward in enumerate(course(dead_from=DEATH))]
    lines[50:50] = [str({"eval_reward": 0.4, "eval_runtime": 3.0, "epoch": 1.0})]
    lines.append(str({"train_runtime": 100.0, "train_loss": 0.01, "epoch": 4.0}))
    assert dead(log("\n".join(lines) + "\n"))


def test_an_epoch_that_goes_back_is_a_resume(log: Log, course: Course) -> None:
    first, again = course(120), course(200, seed=1)
    lines = [hf_line(i, reward) for i, reward in enumerate(first)]
    lines += [hf_line(i, again[i]) for i in range(100, 200)]
    found = log("\n".join(lines) + "\n")
    assert found.verdict.updates == ROWS
    assert any("goes back" in warning for warning in found.verdict.warnings)


def test_utf16_as_some_shells_write_it(log: Log, course: Course) -> None:
    text = "\r\n".join(hf_line(i, reward) for i, reward in enumerate(course(dead_from=DEATH)))
    assert dead(log(text.encode("utf-16")))


def test_json_with_bare_nan_in_lower_case(log: Log, course: Course) -> None:
    rows = [
        f'{{"step": {i + 1}, "reward": {reward}, "lr": 1e-6, "grad_norm": {"nan" if i >= 150 else 0.2}}}'
        for i, reward in enumerate(course())
    ]
    found = log("\n".join(rows) + "\n")
    assert (found.verdict.verdict, found.verdict.onset_updates) == ("diverged", (150.0, 151.0))
