"""The asynchronous schedule: lag bound, equality with lockstep, death of either side, nothing thrown away."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.config import OverlapConfig, ProbeConfig, RunConfig, TaskConfig, TrainerConfig
from trainer.errors import ConfigError, EnvironmentFailedError, TrainerError
from trainer.loop.messages import Batch, Failed, decode, encode
from trainer.loop.rollouts import Rollouts
from trainer.loop.shared import Layout, SharedWeights
from trainer.loop.train import train
from trainer.loop.worker import updates_ahead
from trainer.metrics import MetricsRow


def config(**changes: Any) -> RunConfig:
    defaults: dict[str, Any] = {
        "trainer": TrainerConfig(group_size=4, prompts_per_update=2, warmup=4),
        "probe": ProbeConfig(every=8, prompts=16),
        "task": TaskConfig(held_out=16),
        "schedule": "overlap",
        "sync_interval": 4,
        "updates": 16,
        "checkpoint_every": 4,
    }
    return RunConfig(**{**defaults, **changes})


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").glob("psm_*")}  # noqa: S108


@given(interval=st.integers(1, 9), extra=st.integers(0, 30), total=st.integers(1, 60), eager=st.booleans())
def test_pacing_keeps_the_bound_and_never_stalls(interval: int, extra: int, total: int, eager: bool) -> None:
    """`eager`: generation is faster than the learner; otherwise it only moves when the learner would wait."""
    bound = interval - 1 + extra
    made: list[int] = []  # version of the batch of each update
    version = 0
    for update in range(total):
        if update % interval == 0:
            version = update
        while eager or len(made) <= update:
            ahead = updates_ahead(
                len(made), version=version, sync_interval=interval, lag_bound=bound, total=total
            )
            if ahead < 1:
                break
            made += [version] * ahead
        assert len(made) > update, "the learner would wait for ever"
        assert 0 <= update - made[update] <= bound


@pytest.mark.parametrize("interval", [1, 4])
def test_without_a_queue_the_updates_are_those_of_lockstep(tmp_path: Path, interval: int) -> None:
    """With the bound at S - 1 nothing is made ahead, so both schedules see the same rollouts: the same ten updates."""
    for schedule in ("lockstep", "overlap"):
        train(
            config(
                schedule=schedule,
                sync_interval=interval,
                overlap=OverlapConfig(max_lag=interval - 1),
                updates=10,
            ),
            tmp_path / schedule,
        )
    numbers = (
        "reward_mean",
        "loss",
        "grad_norm",
        "log_ratio_abs_mean",
        "entropy",
        "lag_max",
        "cumulative_lr",
    )
    for ours, theirs in zip(rows(tmp_path / "lockstep"), rows(tmp_path / "overlap"), strict=True):
        assert [ours[name] for name in numbers] == pytest.approx([theirs[name] for name in numbers], abs=1e-6)


@pytest.mark.parametrize(("bound", "in_flight"), [(None, "finish"), (5, "continue"), (11, "finish")])
def test_every_update_is_made_once_within_the_bound(
    tmp_path: Path, bound: int | None, in_flight: str
) -> None:
    run = config(overlap={"max_lag": bound, "in_flight": in_flight})
    summary = train(run, tmp_path)
    found = rows(tmp_path)
    assert [row["update"] for row in found] == list(range(16))
    assert summary.lag_bound == run.lag_bound == (7 if bound is None else bound)
    assert summary.lag_reached == max(row["lag_max"] for row in found) <= run.lag_bound
    assert all(sum(count for _, count in row["lag_histogram"]) == 8 for row in found)
    assert max(row["lag_max"] for row in found) > 3, "nothing was made ahead: the schedules did not overlap"
    assert summary.discarded_groups == 0


def test_groups_that_no_update_used_are_counted(tmp_path: Path) -> None:
    def stop(seen: Sequence[MetricsRow]) -> bool:
        time.sleep(1.0)  # the rollout process works as far ahead as it may
        return len(seen) == 6

    summary = train(config(updates=40), tmp_path, on_row=stop)
    assert (summary.updates, summary.ended) == (6, "stopped")
    # At update 5 the version is 4, so batches up to 4 + 7 may be made: 6 of two groups wait.
    assert summary.discarded_groups == 12
    assert 1 <= (summary.discarded_length or 0) <= 9
    assert summary.discarded_pass_rate is not None
    assert 0 <= summary.discarded_pass_rate <= 1


def test_killed_rollout_process_is_one_clear_error_and_a_resumable_run(tmp_path: Path) -> None:
    before = shared_memory()

    def kill(seen: Sequence[MetricsRow]) -> bool:
        if len(seen) == 6:
            for child in multiprocessing.active_children():
                os.kill(child.pid or 0, signal.SIGKILL)
        return False

    with pytest.raises(EnvironmentFailedError, match=r"rollout process was killed by signal 9.*continues"):
        train(config(), tmp_path, on_row=kill)
    done = len(rows(tmp_path))
    assert 6 <= done < 16
    assert shared_memory() == before
    assert train(config(), tmp_path).updates == 16
    found = rows(tmp_path)
    assert [row["update"] for row in found] == list(range(16))
    assert found[done]["lag_max"] == 0, "a resumed run begins with the weights of its checkpoint"


LEARNER = """
import sys
from pathlib import Path
from tests_config import run
from trainer.loop.train import train
import multiprocessing

def tell(rows):
    if len(rows) == 3:
        print(multiprocessing.active_children()[0].pid, flush=True)
    return False

if __name__ == "__main__":
    train(run, Path(sys.argv[1]), on_row=tell)
"""


def test_killed_learner_leaves_no_process_and_no_shared_memory(tmp_path: Path) -> None:
    before = shared_memory()
    (tmp_path / "tests_config.py").write_text(
        "from trainer.config import RunConfig\n"
        f"run = RunConfig.model_validate_json({config(updates=400).model_dump_json()!r})\n"
    )
    (tmp_path / "learner.py").write_text(LEARNER)
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "learner.py"), str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])},
    ) as learner:
        assert learner.stdout is not None
        worker = int(learner.stdout.readline())
        learner.kill()
    deadline = time.monotonic() + 30
    while (Path(f"/proc/{worker}").exists() or shared_memory() != before) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not Path(f"/proc/{worker}").exists()
    assert shared_memory() == before


TASK = """
import multiprocessing
from trainer.tasks.running_sum import RunningSum

class Failing(RunningSum):
    def score(self, completions, references):
        if multiprocessing.parent_process() is not None:  # the rollout process, not the learner's own probe
            raise KeyError("no such reference")
        return super().score(completions, references)
"""


def test_error_of_the_rollout_process_is_raised_in_the_learner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing_task.py").write_text(TASK)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="no such reference"):
        train(config(task=TaskConfig(name="failing_task:Failing", held_out=16)), tmp_path / "run")


def test_silent_rollout_process_is_called_hung(tmp_path: Path) -> None:
    """Longer than the patience, the rollout process has not even started: it has to load the policy first."""
    with pytest.raises(EnvironmentFailedError, match=r"no rollouts came for 0\.001 s.*patience"):
        train(config(overlap=OverlapConfig(patience=1e-3)), tmp_path)


def test_bound_below_a_cycle_is_refused() -> None:
    with pytest.raises(ValueError, match="max_lag = 2 is below S - 1 = 3"):
        config(overlap=OverlapConfig(max_lag=2))


def test_learner_logprobs_of_mixed_versions_are_refused() -> None:
    with pytest.raises(ValueError, match="choose one of the two"):
        config(
            trainer=TrainerConfig(behaviour_logprobs="learner"), overlap=OverlapConfig(in_flight="continue")
        )


@settings(max_examples=20)
@given(
    shapes=st.lists(st.lists(st.integers(1, 5), max_size=3).map(tuple), min_size=1, max_size=6),
    seed=st.integers(0, 99),
)
def test_shared_weights_arrive_as_they_were(shapes: list[tuple[int, ...]], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    weights = {f"p{i}": torch.randn(shape, generator=generator) for i, shape in enumerate(shapes)}
    layout = Layout.of(weights, torch.float32)
    ours = SharedWeights(layout)
    theirs = SharedWeights(layout, ours.names)
    ours.write(1, weights)
    assert all(torch.equal(theirs.read(1)[name], tensor) for name, tensor in weights.items())
    theirs.close()
    ours.close()


def test_too_little_shared_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout({"w": (2**40,)}, torch.float32)
    with pytest.raises(EnvironmentFailedError, match=r"8192\.00 GiB of shared memory.*shm-size"):
        SharedWeights(layout)


def test_messages_survive_the_way() -> None:
    rollouts = Rollouts(
        prompt=torch.tensor([[1, 2]]),
        prompt_mask=torch.tensor([[False, True]]),
        response=torch.tensor([[3, 4, 5]]),
        mask=torch.tensor([[True, True, False]]),
        behaviour=torch.tensor([[-0.5, -1.25, 0.0]]),
        version=torch.tensor([[4, 8, -1]]),
        reward=torch.tensor([float("nan")]),
    )
    back = decode(encode(Batch(7, rollouts, {"generate": 0.25})))
    assert isinstance(back, Batch)
    assert (back.update, back.seconds) == (7, {"generate": 0.25})
    for name, tensor in rollouts.__dict__.items():
        assert torch.equal(getattr(back.rollouts, name).nan_to_num(-9), tensor.nan_to_num(-9)), name
    assert back.rollouts.oldest_version.tolist() == [4]
    error = decode(encode(Failed("TrainerError", "not a number")))
    assert isinstance(error, Failed)
    assert type(error.error()) is TrainerError
    assert isinstance(Failed("", "ValueError: x").error(), RuntimeError)


@pytest.mark.parametrize("source", ["engine", "learner"])
def test_mismatch_is_measured_where_the_rollouts_are_made(tmp_path: Path, source: str) -> None:
    """On the embedded policy in float32 the floor is rounding: below 1e-5 nats a token, though the lag is not 0."""
    trainer = TrainerConfig(group_size=4, prompts_per_update=2, warmup=4, behaviour_logprobs=source)
    train(config(trainer=trainer, probe=ProbeConfig(every=4, prompts=16)), tmp_path)
    measured = [row for row in rows(tmp_path) if "mismatch_mean" in row]
    assert [row["update"] for row in measured] == [0, 4, 8, 12]
    assert max(row["lag_max"] for row in measured) > 0
    assert 0 < max(row["mismatch_max"] for row in measured) < 1e-5
    first = rows(tmp_path)[0]
    if source == "learner":
        assert first["log_ratio_abs_mean"] == 0.0


@pytest.mark.parametrize(("interval", "bound"), [(1, 7), (4, 15)])
def test_far_ahead_rollouts_do_not_stop_the_learner_at_the_end(
    tmp_path: Path, interval: int, bound: int
) -> None:
    """With everything made long before the end, nobody reads the last weights: the learner must not wait for that."""
    slow = config(sync_interval=interval, updates=24, overlap=OverlapConfig(max_lag=bound, patience=20))

    def dawdle(seen: Sequence[MetricsRow]) -> bool:
        time.sleep(0.05)
        return False

    assert train(slow, tmp_path, on_row=dawdle).updates == 24


def test_a_users_trainer_module_does_not_hide_the_package(tmp_path: Path) -> None:
    (tmp_path / "trainer.py").write_text("raise RuntimeError('the file of the user')\n")
    run = config(updates=4)
    script = (
        "import sys; sys.path.pop(0)\n"
        "from pathlib import Path\n"
        "from trainer.config import RunConfig\n"
        "from trainer.loop.train import train\n"
        f"run = RunConfig.model_validate_json({run.model_dump_json()!r})\n"
        "if __name__ == '__main__':\n"
        "    print(train(run, Path('run')).updates)\n"
    )
    root = str(Path(__file__).parents[3])
    answer = subprocess.run(
        [sys.executable, "-P", "-c", script.replace("sys.path.pop(0)", f"sys.path.insert(0, {root!r})")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert answer.stdout.strip() == "4", answer.stderr


def test_a_resume_may_change_what_results_do_not_depend_on(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailedError, match="patience"):
        train(config(overlap=OverlapConfig(patience=1e-3)), tmp_path)
    assert train(config(overlap=OverlapConfig(patience=600)), tmp_path).updates == 16
    assert config(overlap=OverlapConfig(max_lag=5)).digest() != config().digest()
