"""The dense grid of the embedded default: what the laws are checked against, run by run.

`python bench/dense_grid.py [--folder runs/dense-grid] [--minutes 20] [--workers 2] [--out FILE.csv]`
makes the next runs for so many minutes and adds those that are finished to the table; call it again until it says that
none is left (about 90 minutes of two idle cores). S in {1, 4, 16, 64}, eta = 1e-4 x 2^k for k = 0..7, three seeds,
estimators none and gmc; every run goes to L = 0.08 or 384 updates, whichever is longer, unless the online rule ends it.

The curves (every row, what verdicts rest on, rounded) are kept in FILE-curves.jsonl.gz, one line a run. The table has
the columns of RUNS.csv, so that `calibrate fit` takes it; it is judged anew from the curves at every call.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
# Python puts this script's folder first, where trainer.py would be taken for the package of the same name.
sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]

from calibrator.cli.source import load_source
from calibrator.laws.types import Run
from calibrator.runlogs.append import COLUMNS
from calibrator.runlogs.own import curve_from_rows
from calibrator.study.results import CONFIG, METRICS, VERDICT
from calibrator.study.store import write_json
from calibrator.sweep.executor import make_slots, run_all
from calibrator.sweep.target import trial_process
from calibrator.verdicts.judge import JudgeSettings, judge
from trainer.config import RunConfig
from trainer.metrics import MetricsRow

INTERVALS = (1, 4, 16, 64)
RATES = tuple(round(1e-4 * 2**k, 7) for k in range(8))
SEEDS = (0, 1, 2)
ESTIMATORS = ("none", "gmc")
REACH = 0.08
"""L that every run is to reach, in LR x updates: more than twice the budget that the first studies found."""
SHORTEST = 384
"""Updates of the runs whose rate reaches that L sooner: six cycles at S = 64."""
DIGITS = {
    **dict.fromkeys(("update", "version", "lag_max", "probe_version", "non_finite"), 0),
    **dict.fromkeys(("learning_rate", "reward_mean", "initial_reward", "probe_reward"), 5),
    **dict.fromkeys(("reward_se", "initial_se", "probe_se", "signal"), 3),
    **dict.fromkeys(("grad_norm", "grad_cosine", "log_ratio_abs_mean"), 2),
}
"""Significant digits that are kept of each column; 0: whole numbers and names."""
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
    curves = advanced(configs(), args.out, folder=args.folder, minutes=args.minutes, workers=args.workers)
    made = [config for config in configs() if name(config) in curves]
    write_table([judged(config, curves[name(config)]) for config in made], args.out)
    left = len(configs()) - len(made)
    print(f"{len(made)} runs are in {args.out}" + (f"; {left} are left" if left else ""))


def advanced(
    grid: Sequence[RunConfig], out: Path, *, folder: Path, minutes: float, workers: int
) -> dict[str, list[MetricsRow]]:
    """Make the next runs of `grid` for a while. The curves of all that are finished, by name, are kept beside `out`."""
    kept = out.with_name(f"{out.stem}-curves.jsonl.gz")
    curves = read_curves(kept)
    folders = {run: place for run, place in places(grid, folder).items() if run not in curves}
    by_name = {name(config): config for config in grid}
    make_runs(
        [prepared(place, by_name[run]) for run, place in folders.items()], minutes=minutes, workers=workers
    )
    curves |= {run: thinned(place / METRICS) for run, place in folders.items() if (place / VERDICT).is_file()}
    curves = {run: curves[run] for run in by_name if run in curves}
    out.parent.mkdir(parents=True, exist_ok=True)
    write_curves(curves, kept)
    return curves


def places(grid: Sequence[RunConfig], folder: Path) -> dict[str, Path]:
    """The folder of each run, by name."""
    return {name(config): folder / f"{number:03d}" for number, config in enumerate(grid)}


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


def thinned(path: Path) -> list[MetricsRow]:
    """The rows of a run with what verdicts rest on."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        {key: _short(line[key], digits) for key, digits in DIGITS.items() if key in line} for line in rows
    ]


def _short(value: object, digits: int) -> object:
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def read_curves(path: Path) -> dict[str, list[MetricsRow]]:
    """The runs that were made, by name; they are not made again."""
    if not path.exists():
        return {}
    lines = gzip.decompress(path.read_bytes()).splitlines()
    return {line["run"]: line["rows"] for line in map(json.loads, lines)}


def write_curves(curves: Mapping[str, Sequence[MetricsRow]], path: Path) -> None:
    """One line a run; the same bytes for the same runs."""
    lines = [json.dumps({"run": run, "rows": rows}, separators=(",", ":")) for run, rows in curves.items()]
    path.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))


def judged(config: RunConfig, rows: Sequence[MetricsRow]) -> Run:
    """The run with its verdict, as a trial of a study gets it."""
    curve = curve_from_rows(rows)
    settings = JudgeSettings(
        full_marks=1.0,
        sync_interval=config.sync_interval,
        horizon=config.updates,
        ended="finished" if curve.updates == config.updates else "stopped",
    )
    verdict = judge(curve, settings)
    onset, cumulative = verdict.onset_updates or (None, None), verdict.cumulative_lr_at_onset or (None, None)
    before = verdict.updates if onset[1] is None else math.ceil(onset[1])
    return Run(
        run=name(config),
        estimator=config.trainer.estimator,
        sync_interval=config.sync_interval,
        max_lag=min(config.sync_interval, before) - 1,
        learning_rate=config.learning_rate,
        seed=config.seed,
        updates=verdict.updates,
        verdict=verdict.verdict,
        cumulative_lr=verdict.cumulative_lr_total or 0.0,
        onset_low=onset[0],
        onset_high=onset[1],
        cumulative_lr_onset_low=cumulative[0],
        cumulative_lr_onset_high=cumulative[1],
    )


def write_table(runs: Sequence[Run], out: Path) -> None:
    """One row a run."""
    with out.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(row(run) for run in runs)


def row(run: Run) -> dict[str, object]:
    """The run as a row of RUNS.csv."""
    return {field: _text(getattr(run, field)) for field in COLUMNS}


def _text(value: object) -> object:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else value


if __name__ == "__main__":
    main()
