"""Finished trials that were tampered with are named, never taken for something else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from calibrator.errors import CorruptStudyError
from calibrator.study.results import load_result
from calibrator.study.timings import cycles
from calibrator.verdicts.types import RunVerdict, Verdict
from trainer.config import RunConfig
from trainer.metrics import encode_row


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    folder = tmp_path / "3"
    folder.mkdir()
    rows = [
        {"update": u, "version": u, "learning_rate": 1e-3, "lag_max": 0, "reward_mean": 0.5, "reward_se": 0.1}
        for u in range(20)
    ]
    verdict = RunVerdict(verdict=Verdict.STABLE, updates=20, cumulative_lr_total=0.02)
    summary = {
        **{"updates": 20, "ended": "finished", "held_out_before": None, "held_out_after": None},
        **{"lag_bound": 3, "lag_reached": 3, "paced": 0},
        **{"discarded_groups": 0, "discarded_length": None, "discarded_pass_rate": None},
    }
    (folder / "config.json").write_text(RunConfig(updates=20).model_dump_json())
    (folder / "metrics.jsonl").write_text("".join(encode_row(row) + "\n" for row in rows))
    (folder / "verdict.json").write_text(verdict.model_dump_json())
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "proposal.json").write_text('{"stage": "round-1"}')
    (folder / "timings.jsonl").write_text('{"update":0,"learn":0.1,"synchronize":0.01}\n')
    return folder


def test_a_sound_trial_is_read(trial: Path) -> None:
    result = load_result(trial)
    assert result is not None
    assert result.run().updates == 20
    assert cycles(trial)[0]["updates"] == 1


@pytest.mark.parametrize("name", ["config.json", "verdict.json", "summary.json"])
@pytest.mark.parametrize("content", ["garbage", "{}", "[]", '{"updates": "many"}'])
def test_a_broken_record_is_named_with_a_remedy_that_works(trial: Path, name: str, content: str) -> None:
    if (name, content) == ("config.json", "{}"):
        pytest.skip("an empty config is the default one")
    (trial / name).write_text(content)
    with pytest.raises(CorruptStudyError, match=rf"{name}.*move .* away"):
        load_result(trial)


@pytest.mark.parametrize(
    "content", ["x\n", "", '{"update": 9999999999, "version": 0, "learning_rate": 1e-3}\n']
)
def test_a_log_that_is_not_the_verdicts_is_refused(trial: Path, content: str) -> None:
    (trial / "metrics.jsonl").write_text(content)
    result = load_result(trial)
    assert result is not None
    with pytest.raises(CorruptStudyError, match=r"metrics\.jsonl|row"):
        result.run()


def test_a_missing_log_is_named(trial: Path) -> None:
    (trial / "metrics.jsonl").unlink()
    result = load_result(trial)
    assert result is not None
    with pytest.raises(CorruptStudyError, match="cannot be read"):
        result.run()


def test_broken_timings_are_named(trial: Path) -> None:
    (trial / "timings.jsonl").write_text("x\n")
    with pytest.raises(CorruptStudyError, match=r"timings\.jsonl"):
        cycles(trial)


@pytest.mark.parametrize("content", [None, "[", "{}", '{"stage": 3}', '{"stage": ""}'])
def test_a_trial_that_cannot_say_why_it_was_made_is_refused(trial: Path, content: str | None) -> None:
    """As one of the sweep it would enter the fit, which a confirmation does not."""
    result = load_result(trial)
    assert result is not None
    assert (result.stage, result.is_check) == ("round-1", False)
    (trial / "proposal.json").unlink()
    if content is not None:
        (trial / "proposal.json").write_text(content)
    result = load_result(trial)
    assert result is not None
    with pytest.raises(CorruptStudyError, match=r"proposal\.json.*`calibrate run` writes it anew"):
        _ = result.stage


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_numbers_that_are_not_finite_are_named(trial: Path, number: str) -> None:
    content = json.loads((trial / "verdict.json").read_text()) | {"onset_updates": ["x", "x"]}
    (trial / "verdict.json").write_text(json.dumps(content).replace('"x"', number))
    with pytest.raises(CorruptStudyError, match=rf"verdict\.json.*{number} is not a finite number.*; move"):
        load_result(trial)


def test_an_unreadable_folder_is_not_a_trial_without_verdict(trial: Path) -> None:
    (trial / "verdict.json").unlink()
    assert load_result(trial) is None
    loop = trial.with_name("4")
    loop.symlink_to(loop)  # stands for all that root may not do either
    with pytest.raises(OSError, match="4/verdict"):
        load_result(loop)
