"""The dense grid of the embedded default: what the laws are checked against, run by run.

`python bench/dense_grid.py [--folder runs/dense-grid] [--minutes 20] [--workers 2] [--out FILE.csv]`
makes the next runs for so many minutes and adds those that are finished to the table; call it again until it says that
none is left (about 90 minutes of two idle cores). S in {1, 4, 16, 64}, eta = 1e-4 x 2^k for k = 0..7, three seeds,
estimators none and gmc; every run goes to L = 0.08 or 384 updates, whichever is longer, unless the online rule ends it.

The table has the columns of RUNS.csv: `calibrate fit` takes it. Beside it lies FILE-rewards.csv with the updates that
each run would have made, and the mean of the first and of the last three probes of the learner.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
from itertools import product
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
# Python puts this script's folder first, where trainer.py would be taken for the package of the same name.
sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]

import numpy as np

from calibrator.cli.source import load_source
from calibrator.study.results import CONFIG, VERDICT, TrialResult, load_result
from calibrator.study.store import write_json
from calibrator.sweep.executor import make_slots, run_all
from calibrator.sweep.target import trial_process
from trainer.config import RunConfig

INTERVALS = (1, 4, 16, 64)
RATES = tuple(round(1e-4 * 2**k, 7) for k in range(8))
SEEDS = (0, 1, 2)
ESTIMATORS = ("none", "gmc")
REACH = 0.08
"""L that every run is to reach, in LR x updates: more than twice the budget that the first studies found."""
SHORTEST = 384
"""Updates of the runs whose rate reaches that L sooner: six cycles at S = 64."""
AT_ONCE = 8
"""Trials given to the pool together."""


def planned_updates(rate: float) -> int:
    """Whole cycles at every S of the grid."""
    return max(SHORTEST, -(-round(REACH / rate) // 64) * 64)


def configs() -> list[RunConfig]:
    """All runs of the grid in the order in which they are made: a whole grid of one seed first."""
    study = load_source(None).config
    return [
        study.run_config(
            estimator=estimator,
            sync_interval=interval,
            learning_rate=rate,
            updates=planned_updates(rate),
            seed=seed,
            evaluate=False,
        )
        for seed, estimator, interval, rate in product(SEEDS, ESTIMATORS, INTERVALS, RATES)
    ]


def main() -> None:
    """Make runs for a while, then write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("runs/dense-grid"))
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("bench/results/dense_grid.csv"))
    args = parser.parse_args()
    beside = args.out.with_name(f"{args.out.stem}-rewards.csv")
    table, rewards = read_table(args.out), read_table(beside)
    folders = {
        name(config): prepared(args.folder / f"{number:03d}", config)
        for number, config in enumerate(configs())
        if name(config) not in table
    }
    make_runs(list(folders.values()), minutes=args.minutes, workers=args.workers)
    results = [result for folder in folders.values() if (result := load_result(folder))]
    table |= {name(result.config): row(result) for result in results}
    rewards |= {name(result.config): rewards_of(result) for result in results}
    order = [name(config) for config in configs() if name(config) in table]
    write_table([table[run] for run in order], args.out)
    write_table([rewards[run] for run in order], beside)
    left = len(configs()) - len(order)
    print(f"{len(order)} runs are in {args.out}" + (f"; {left} are left" if left else ""))


def name(config: RunConfig) -> str:
    """What a run is called in the table."""
    estimator = config.trainer.estimator
    return f"{estimator}-S{config.sync_interval}-eta{config.learning_rate:g}-{config.seed}"


def prepared(folder: Path, config: RunConfig) -> Path:
    """The folder of one run, with its config in it."""
    if not (folder / CONFIG).exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / CONFIG, config.model_dump(mode="json"))
    elif RunConfig.model_validate_json((folder / CONFIG).read_bytes()).digest() != config.digest():
        sys.exit(f"{folder} holds a run of another grid: choose another --folder")
    return folder


def make_runs(folders: list[Path], *, minutes: float, workers: int) -> None:
    """Start no new runs once the time is over."""
    deadline = time.monotonic() + 60 * minutes
    slots = make_slots(workers=workers, gpus_per_trial=0)
    waiting = [folder for folder in folders if not (folder / VERDICT).is_file()]
    while waiting and time.monotonic() < deadline:
        now, waiting = waiting[:AT_ONCE], waiting[AT_ONCE:]
        run_all(now, slots, target=trial_process, on_tick=lambda running, done: None)
        print(f"{len(folders) - len(waiting)} of {len(folders)}", file=sys.stderr)


def read_table(path: Path) -> dict[str, dict[str, object]]:
    """The rows that are there by name; they are not made again."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {line["run"]: dict(line) for line in csv.DictReader(file)}


def write_table(rows: list[dict[str, object]], out: Path) -> None:
    """One row a run."""
    if not rows:
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def row(result: TrialResult) -> dict[str, object]:
    """The run as the laws see it."""
    run = result.run()
    return {
        "run": name(result.config),
        "estimator": run.estimator,
        "sync_interval": run.sync_interval,
        "max_lag": run.max_lag,
        "learning_rate": run.learning_rate,
        "seed": run.seed,
        "updates": run.updates,
        "verdict": run.verdict.value,
        "onset_low": _text(run.onset_low),
        "onset_high": _text(run.onset_high),
        "cumulative_lr": _text(run.cumulative_lr),
        "cumulative_lr_onset_low": _text(run.cumulative_lr_onset_low),
        "cumulative_lr_onset_high": _text(run.cumulative_lr_onset_high),
    }


def rewards_of(result: TrialResult) -> dict[str, object]:
    """What the run would have made, and what the policy won."""
    probes = result.curve.probes
    return {
        "run": name(result.config),
        "planned": result.config.updates,
        "reward_first": _text(float(np.mean(probes.value[:3])) if probes is not None else None),
        "reward_last": _text(float(np.mean(probes.value[-3:])) if probes is not None else None),
    }


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


if __name__ == "__main__":
    main()
