"""A trial from its config to its verdict, and who owns a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from calibrator.study.results import CONFIG
from calibrator.sweep import trial
from calibrator.sweep.trial import claim, execute
from calibrator.verdicts.types import Verdict
from trainer.config import LogConfig, ProbeConfig, RunConfig, TaskConfig, TrainerConfig
from trainer.errors import ConfigError, EnvironmentFailedError

RUN = RunConfig(
    trainer=TrainerConfig(group_size=8, prompts_per_update=4, warmup=4),
    probe=ProbeConfig(every=4, prompts=64),
    task=TaskConfig(held_out=64),
    sync_interval=2,
    learning_rate=0.05,
    updates=80,
)


def test_a_folder_is_claimed_by_one_run_and_nothing_in_it_is_ever_removed(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match=r"thesis\.tex"):
        claim(tmp_path, RUN)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
    own = tmp_path / "run"
    own.mkdir()
    claim(own, RUN)
    claim(own, RUN)
    (own / "metrics.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError, match="another run"):
        claim(own, RUN.model_copy(update={"seed": 1}))


def test_a_model_folder_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    with pytest.raises(ConfigError, match="or a model"):
        claim(tmp_path, RUN)


def test_a_policy_that_dies_in_its_first_cycle_has_collapsed_and_is_ended(tmp_path: Path) -> None:
    claim(tmp_path, RUN)
    summary, verdict = execute(RUN, tmp_path)
    assert verdict.verdict is Verdict.COLLAPSED
    assert summary.ended == "stopped"
    assert summary.updates < RUN.updates
    assert verdict.onset_updates is not None
    assert verdict.onset_updates[1] <= 12


def test_logging_may_change_while_a_run_is_under_way(tmp_path: Path) -> None:
    claim(tmp_path, RUN)
    louder = RUN.model_copy(update={"log": LogConfig(tensorboard=True)})
    claim(tmp_path, louder)
    assert RunConfig.model_validate_json((tmp_path / CONFIG).read_bytes()) == louder
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError, match="another run"):
        claim(tmp_path, RUN.model_copy(update={"seed": 99}))


def test_a_trial_that_runs_out_of_memory_says_what_to_lower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch really asks for more than any address space holds."""

    def greedy(*arguments: object, **options: object) -> None:
        torch.empty(2**60)

    monkeypatch.setattr(trial, "train", greedy)
    with pytest.raises(
        EnvironmentFailedError, match=r"out of memory .*resources\.workers.*micro_batch_groups"
    ):
        execute(RUN, tmp_path)


def test_a_run_that_made_no_update_may_be_replaced(tmp_path: Path) -> None:
    claim(tmp_path / "run", RunConfig())
    claim(tmp_path / "run", RunConfig(learning_rate=2e-3))
    (tmp_path / "run" / "metrics.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError, match=r"learning_rate = 0\.002 there"):
        claim(tmp_path / "run", RunConfig(learning_rate=3e-3))


def test_a_run_is_not_continued_on_other_data(tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text('{"question": "1+1", "answer": 2}\n{"question": "1+2", "answer": 3}\n')
    config = RunConfig(task=TaskConfig(name="jsonl", options={"path": str(data)}))
    claim(tmp_path / "run", config)
    (tmp_path / "run" / "metrics.jsonl").write_text("{}\n")
    claim(tmp_path / "run", config)
    data.write_text('{"question": "2+1", "answer": 3}\n{"question": "2+2", "answer": 4}\n')
    with pytest.raises(ConfigError, match="task's data or code is not what the run"):
        claim(tmp_path / "run", config)
