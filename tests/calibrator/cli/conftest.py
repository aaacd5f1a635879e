"""A finished study whose trials were drawn from a known truth instead of trained."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from calibrator.cli.delivery import write_answer
from calibrator.cli.main import app
from calibrator.simulator.truth import Truth, simulated_run
from calibrator.study.config import StudyConfig, parse_config
from calibrator.study.journal import Journal
from calibrator.study.store import prepare, write_json
from calibrator.sweep.rounds import Execute, Sweep
from calibrator.verdicts.types import RunVerdict
from trainer.config import RunConfig, learning_rate_at
from trainer.metrics import encode_row
from trainer.summary import RunSummary

TRUTH = Truth("ceiling", B=0.03, C=0.04, eta_0=2e-3)

Calibrate = Callable[..., Result]


@pytest.fixture
def calibrate() -> Calibrate:
    def run(*arguments: object) -> Result:
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    return run


@pytest.fixture(scope="session")
def simulated_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study after a whole sweep, confirmed and handed over."""
    return simulated(tmp_path_factory.mktemp("simulated") / "study", {})


@pytest.fixture
def small_simulated_study(tmp_path: Path) -> Path:
    """One whose runs take seconds where they are made for real."""
    small: dict[str, Any] = {
        "trainer": {"group_size": 8, "prompts_per_update": 4},
        "probe": {"prompts": 64},
        "task": {"held_out": 64},
        "advice": {"horizon": 96},
    }
    return simulated(tmp_path / "study", small)


def simulated(root: Path, settings: dict[str, Any]) -> Path:
    content = {
        "output": {"folder": str(root)},
        "sweep": {"learning_rates": [2e-4, 8e-3], "sync_intervals": [4, 16, 64], "rounds": 4},
        **settings,
    }
    config = parse_config(StudyConfig, content, source="test")
    study = prepare(config, "")
    sweep = Sweep(config, study, Journal(study.journal), simulate)
    outcome = sweep.run()
    write_answer(config, study, sweep.results, outcome.conclusion, show=lambda _: None)
    assert outcome.conclusion.recommendation is not None, outcome.conclusion.refusal
    return root


@pytest.fixture
def simulated_trials() -> Execute:
    """What stands in for the executor."""
    return simulate


@pytest.fixture
def study(simulated_study: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(simulated_study, tmp_path / "study"))


def simulate(folders: Sequence[Path], *, stage: str, spent: int) -> None:
    """Stands in for the executor: writes what trials leave behind."""
    for folder in folders:
        if (folder / "verdict.json").exists():
            continue
        config = RunConfig.model_validate_json((folder / "config.json").read_text())
        verdict = _verdict(config)
        lines = (encode_row(_row(config, update)) + "\n" for update in range(verdict.updates))
        (folder / "metrics.jsonl").write_text("".join(lines))
        summary = RunSummary(
            updates=verdict.updates,
            ended="finished",
            held_out_before=0.4,
            held_out_after=0.9,
            lag_bound=config.lag_bound,
            lag_reached=config.lag_bound,
            paced=0,
            discarded_groups=0,
            discarded_length=None,
            discarded_pass_rate=None,
        )
        write_json(folder / "summary.json", summary.model_dump(mode="json"))
        write_json(folder / "verdict.json", verdict.model_dump(mode="json"))


def _verdict(config: RunConfig) -> RunVerdict:
    rates = np.array([_rate(config, update) for update in range(config.updates)])
    run = simulated_run(
        TRUTH,
        sync_interval=config.sync_interval,
        learning_rate=config.learning_rate,
        updates=config.updates,
        seed=config.seed,
        rates=rates,
    )
    died = run.onset_low is not None
    return RunVerdict(
        verdict=run.verdict,
        updates=run.updates,
        cumulative_lr_total=run.cumulative_lr,
        onset_updates=(run.onset_low, run.onset_high) if died else None,
        cumulative_lr_at_onset=(run.cumulative_lr_onset_low, run.cumulative_lr_onset_high) if died else None,
    )


def _row(config: RunConfig, update: int) -> dict[str, float]:
    lag = update % config.sync_interval
    row = {"update": update, "version": update - lag, "learning_rate": _rate(config, update), "lag_max": lag}
    return {**row, "reward_mean": 0.5, "reward_se": 0.1, "response_length": 9.0}


def _rate(config: RunConfig, update: int) -> float:
    return learning_rate_at(update, peak=config.learning_rate, warmup=config.trainer.warmup)
