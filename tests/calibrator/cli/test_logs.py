"""From the logs of somebody else's runs to laws and a recommendation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import Result

from calibrator.simulator.truth import Truth, simulated_run

Calibrate = Callable[..., Result]
TRUTH = Truth("power", B=3e-4, C=2e-5, alpha=1.0, sigma_C=0.15)
INTERVALS, RATES = (4, 8, 16, 32), (2.5e-7, 5e-7, 1e-6, 2e-6, 8e-6)


def write_trl(path: Path, S: int, eta: float) -> None:
    """trainer_state.json of a run: the reward rises to 0.7 and falls to nothing at the onset, if there is one."""
    updates = max(round(4 * TRUTH.B / eta), 300)
    run = simulated_run(TRUTH, sync_interval=S, learning_rate=eta, updates=updates, seed=0, world=3)
    rng = np.random.default_rng([S, round(eta * 1e9)])
    reward = 0.4 + 0.3 * np.minimum(np.arange(run.updates) / 200, 1)
    if run.onset_high is not None:
        reward[int(run.onset_high) :] = 0.0
    reward = np.round(rng.binomial(128, reward) / 128, 6)
    rows = [
        {
            "step": step,
            "epoch": step / 100,
            "reward": value,
            "learning_rate": eta,
            "grad_norm": 0.2,
            "kl": 1e-3,
        }
        for step, value in enumerate(reward.tolist(), start=1)
    ]
    path.parent.mkdir()
    path.write_text(json.dumps({"global_step": run.updates, "log_history": rows}))


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty finished TRL runs, each in a folder, and settings that give S by the folder's name."""
    root = tmp_path_factory.mktemp("trl")
    settings = {}
    for S in INTERVALS:
        for eta in RATES:
            name = f"S{S}-lr{eta:g}"
            write_trl(root / name / "trainer_state.json", S, eta)
            settings[name] = {"sync_interval": S, "estimator": "grpo"}
    (root / "settings.json").write_text(json.dumps(settings))
    return root


def sources(logs: Path) -> list[Path]:
    return sorted(logs.glob("*/trainer_state.json"))


def test_twenty_logs_give_the_laws_they_were_made_from(calibrate: Calibrate, logs: Path) -> None:
    answer = calibrate("fit", *sources(logs), "--settings", logs / "settings.json", "--json")
    assert answer.exit_code == 0, answer.stderr
    (stratum,) = json.loads(answer.stdout)["strata"]
    assert (stratum["estimator"], stratum["runs"]) == ("grpo", 20)
    assert {row["sync_interval"] for row in stratum["eta_max"]} == set(INTERVALS)
    power, B = stratum["boundary"]["models"]["power"], stratum["budget"]["B"]
    assert power["C"]["low"] <= TRUTH.C <= power["C"]["high"]
    assert B["low"] <= TRUTH.B <= B["high"]
    assert "trl, S = 16, largest lag 15" in answer.stderr


def test_twenty_logs_give_s_and_eta(calibrate: Calibrate, logs: Path) -> None:
    settings = logs / "settings.json"
    answer = calibrate("recommend", *sources(logs), "--settings", settings, "--horizon", 1000, "--json")
    assert answer.exit_code == 0, answer.stderr
    found: dict[str, Any] = json.loads(answer.stdout)
    assert found["sync_interval"] in INTERVALS
    safe = TRUTH.eta_at_risk(found["sync_interval"])
    assert safe / 4 < found["learning_rate"] <= safe
    assert (found["group_size"], found["epsilon"], found["estimator"]) == (None, None, "grpo")


def test_settings_of_a_log_that_is_not_there_are_refused(
    calibrate: Calibrate, logs: Path, tmp_path: Path
) -> None:
    (log, *_) = sources(logs)
    path = tmp_path / "settings.json"
    for content, words in (
        ({"other": {"sync_interval": 4}}, "none of the logs is named other"),
        ({log.parent.name: {"sync_intervall": 4}}, "sync_intervall"),
        ({log.parent.name: 4}, "holds no object"),
    ):
        path.write_text(json.dumps(content))
        answer = calibrate("fit", log, "--settings", path)
        assert answer.exit_code == 2
        assert words in answer.stderr
        assert len(answer.stderr.strip().splitlines()) == 1
