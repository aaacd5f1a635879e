"""Study folders whose trials are simulated: every file that `calibrate run` would leave, without a training step."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from calibrator.handoff.conclude import conclude
from calibrator.handoff.write import write_conclusion
from calibrator.simulator.log import rows
from calibrator.simulator.policy import Habits
from calibrator.simulator.runs import Setting, Simulated, simulate
from calibrator.simulator.truth import Truth
from calibrator.study.config import StudyConfig
from calibrator.study.results import load_results
from calibrator.study.store import StudyFolder, prepare, write_json
from calibrator.sweep.judging import trial_settings
from calibrator.verdicts.judge import judge
from trainer.metrics import MetricsRow, encode_row
from trainer.summary import RunSummary

Outcome = Literal["finished", "unfinished"]
TRUTH = Truth("ceiling", B=0.03, C=0.05, eta_0=3e-3)
HABITS = Habits(start=(0.35, 0.45), top=(0.9, 0.98), learning=(20.0, 60.0), wander=(0.05, 0.1), dips=0.0)
PROBED = 5
"""Updates between two staleness probes: prime to the intervals, so that all lags come."""
INTERVALS, RATES = (1, 4, 16, 64), (2e-4, 4e-4, 8e-4, 1.6e-3, 3.2e-3)


def write_study(
    root: Path,
    *,
    rates: Sequence[float] = RATES,
    intervals: Sequence[int] = INTERVALS,
    seeds: int = 2,
    copies: int = 1,
    outcome: Outcome = "finished",
    staleness: bool = False,
) -> Path:
    """A study of len(intervals) x len(rates) x seeds trials in `root`, each `copies` times over.

    `staleness` adds the fields of that probe. A finished one has fit.json, manifest.json and recommendation.json, if
    its runs allow one.
    """
    config = StudyConfig.model_validate({"output": {"folder": str(root)}, "advice": {"horizon": 400}})
    study = prepare(config, f'[advice]\nhorizon = 400\n[output]\nfolder = "{root}"\n')
    number = 0
    for S in intervals:
        for eta in rates:
            updates = int(min(320, max(64, 2 * S, 0.12 / eta)))
            setting = Setting(updates=updates, S=S, learning_rate=eta, warmup=10, habits=HABITS)
            batch = simulate(setting, range(seeds), truth=TRUTH)
            for run in range(seeds):
                _write_trial(config, study, batch, run, number, staleness=staleness)
                for again in range(1, copies):
                    shutil.copytree(study.trial(number), study.trial(number + again))
                number += copies
    if outcome == "finished":
        _conclude(config, study)
    return root


def _write_trial(
    config: StudyConfig, study: StudyFolder, batch: Simulated, run: int, number: int, *, staleness: bool
) -> None:
    setting, folder = batch.setting, study.trial(number)
    folder.mkdir(parents=True)
    made = config.run_config(
        estimator="gmc",
        sync_interval=setting.S,
        learning_rate=setting.learning_rate,
        updates=setting.updates,
        seed=batch.seeds[run],
    )
    told = rows(batch, run)
    if staleness:
        _add_bias(told, setting, number)
    write_json(folder / "config.json", made.model_dump(mode="json"))
    write_json(folder / "proposal.json", {"stage": "round-1"})
    (folder / "metrics.jsonl").write_text("".join(encode_row(row) + "\n" for row in told))
    verdict = judge(batch.curve(run), trial_settings(made))
    write_json(folder / "verdict.json", verdict.model_dump(mode="json"))
    write_json(folder / "summary.json", _summary(setting).model_dump(mode="json"))
    (folder / "timings.jsonl").write_text("".join(_seconds(u, setting.S) for u in range(setting.updates)))


def _add_bias(told: list[MetricsRow], setting: Setting, seed: int) -> None:
    """A bias that grows with lag x eta and is zero at lag 0, with noise that shrinks with it."""
    noise = np.random.default_rng(seed)
    for row in told:
        lag = row["update"] - row["version"]
        row["lag_mean"] = float(lag)
        if row["update"] % PROBED:
            continue
        row["bias_sq"] = (60 * lag * setting.learning_rate) ** 2 * float(1 + 0.5 * noise.standard_normal())
        row["full_grad_sq"] = 0.04


def _summary(setting: Setting) -> RunSummary:
    return RunSummary(
        updates=setting.updates,
        ended="finished",
        held_out_before=None,
        held_out_after=None,
        lag_bound=setting.S - 1,
        lag_reached=min(setting.S, setting.updates) - 1,
        paced=0,
        discarded_groups=0,
        discarded_length=None,
        discarded_pass_rate=None,
    )


def _seconds(update: int, S: int) -> str:
    row = {"update": update, "learn": 0.07}
    if update % S == 0:
        row |= {"synchronize": 0.0006, "generate": 0.03 * S, "score": 0.001 * S}
    return json.dumps(row) + "\n"


def _conclude(config: StudyConfig, study: StudyFolder) -> None:
    from calibrator.cli.view import manifest

    results = load_results(study)
    write_conclusion(config, study, conclude(config, study, results))
    write_json(study.manifest, manifest(config, results))
