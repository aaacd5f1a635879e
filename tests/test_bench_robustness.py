"""The side-by-side of the estimators: what it plans, that it never makes a run twice, what it reads off its table."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from calibrator.laws.types import Run
from calibrator.verdicts.types import Verdict
from trainer.algorithms import ESTIMATORS
from trainer.config import RunConfig

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_robustness", ROOT / "bench/robustness.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_grid_is_balanced_and_starts_with_all_estimators(bench: ModuleType) -> None:
    grid: list[RunConfig] = bench.configs()
    assert len(grid) == len({bench.name(config) for config in grid}) == 288
    assert set(Counter(config.trainer.estimator for config in grid).values()) == {32}
    assert {config.trainer.estimator for config in grid[:9]} == set(ESTIMATORS)
    assert {config.seed for config in grid[:144]} == {0}
    assert all(config.updates % config.sync_interval == 0 and config.evaluate for config in grid)


def tiny(config: RunConfig) -> RunConfig:
    content = config.model_dump() | {"updates": 6, "sync_interval": 2}
    content["trainer"] |= {"group_size": 4, "prompts_per_update": 2, "warmup": 1}
    content["probe"] |= {"prompts": 8}
    content["task"] |= {"held_out": 8}
    return RunConfig.model_validate(content)


@pytest.mark.slow
def test_a_finished_run_is_never_made_again(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = [tiny(config) for config in bench.configs()[:2]]
    out = tmp_path / "results/robustness.csv"

    def call(minutes: str) -> str:
        options = [
            "--folder",
            str(tmp_path / "runs"),
            "--out",
            str(out),
            "--workers",
            "1",
            "--minutes",
            minutes,
        ]
        monkeypatch.setattr(sys, "argv", ["robustness.py", *options])
        bench.main()
        return capsys.readouterr().out

    monkeypatch.setattr(bench, "configs", lambda: grid)
    assert "0 runs" in call("0")
    assert not out.exists()
    assert "2 runs" in call("1")
    table = out.read_bytes()
    outcomes = bench.read_outcomes(out)
    assert [o.run.estimator for o in outcomes] == [config.trainer.estimator for config in grid]
    assert all(0 <= o.held_out <= 1 and o.run.updates == 6 and not o.run.strata for o in outcomes)
    shutil.rmtree(tmp_path / "runs")
    assert "left" not in call("1")
    assert not list((tmp_path / "runs").rglob("metrics.jsonl"))
    assert out.read_bytes() == table


def outcome(bench: ModuleType, verdict: Verdict, held_out: float, **changes: Any) -> Any:
    run = {
        "run": "any", "estimator": "gmc", "sync_interval": 8, "max_lag": 7, "learning_rate": 5e-4, "updates": 512,
        "verdict": verdict, "cumulative_lr": 0.2,
    }  # fmt: skip
    return bench.Outcome(Run.model_validate(run | changes), 0.4, held_out, 0.25)


def test_cells_of_the_tables(bench: ModuleType) -> None:
    low, middle, high = bench.RATES[:3]
    some = [
        outcome(bench, Verdict.STABLE, 0.6, learning_rate=low),
        outcome(bench, Verdict.STABLE, 0.8, learning_rate=low, seed=1),
        outcome(bench, Verdict.STABLE, 0.9, learning_rate=middle),
        outcome(bench, Verdict.COLLAPSED, 0.1, learning_rate=middle, seed=1),
        outcome(bench, Verdict.STABLE, 0.9, learning_rate=high),
        outcome(bench, Verdict.INCONCLUSIVE, 0.3, learning_rate=high, seed=1),
    ]
    assert bench.best_rate(some) == "0.700 (1.6e-4)"
    assert bench.all_rates(some) == "0.600"
    assert bench.largest_stable(some) == "1.6e-4"
    assert bench.largest_stable(some[2:]) == "none"
    assert bench.letters(some) == "ss sc s?"
    assert bench.activation(some) == "0.25"


def onset(rate: float) -> dict[str, float]:
    updates = {"onset_low": 10.0, "onset_high": 20.0}
    return {**updates, **{f"cumulative_lr_{key}": rate * value for key, value in updates.items()}}


def test_the_report_names_every_estimator_of_a_table(
    bench: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rates = bench.RATES
    some = [
        outcome(
            bench,
            Verdict.COLLAPSED if rate * S > 0.01 else Verdict.STABLE,
            0.1 if rate * S > 0.01 else 0.9,
            run=f"{estimator}-{S}-{rate}",
            estimator=estimator,
            sync_interval=S,
            max_lag=S - 1,
            learning_rate=rate,
            cumulative_lr=512 * rate,
            **(onset(rate) if rate * S > 0.01 else {}),
        )
        for estimator in ("gmc", "mis")
        for S in bench.INTERVALS
        for rate in rates
    ]
    out = tmp_path / "robustness.csv"
    bench.write_outcomes(some, out)
    assert bench.read_outcomes(out) == some
    bench.report(bench.read_outcomes(out), tmp_path)
    said = capsys.readouterr().out
    assert said.count("| `gmc` |") == said.count("| `mis` |") == 6
    figure = (tmp_path / "robustness.svg").read_text()
    assert figure.startswith("<?xml")
    again = tmp_path / "again.svg"
    bench.draw({"gmc": some[:16], "mis": some[16:]}, again)
    assert again.read_text() == figure
